import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { spawn, spawnSync } from "node:child_process"
import { mkdtempSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { freePort } from "../../runners/local/FreePort.ts"
import { HandleTaken } from "#domain/registration/Code"
import { adminHere } from "../support/Admin.ts"
import { PATIENCE_MS, within } from "../support/Eventually.ts"
import { type Server, sharedServer, startServer } from "../support/Server.ts"
import { type Block, DOCUMENTS, parse, ROOT } from "./Markdown.ts"

const blocksOf = (document: string): ReadonlyArray<Block> => parse(document).blocks
const place = ({ document, line }: Block): string => `${document}:${line}`

it("every block of shell commands is one that a shell can read", () => {
  const blocks = DOCUMENTS.flatMap(blocksOf).filter(({ language }) => language === "sh")
  assert.isAbove(blocks.length, 20)
  // One shell starts the others: a process as large as this one takes long to start each.
  const each = `i=0; while IFS= read -r -d "" block; do bash -n <<< "$block" 2>&1 || echo "in block $i"; i=$((i + 1)); done; echo "$i read"`
  const { stdout } = spawnSync("bash", ["-c", each], { input: blocks.map(({ text }) => `${text}\0`).join(""), encoding: "utf8" })
  const said = stdout.replaceAll(/in block (\d+)/g, (_, i: string) => place(blocks[Number(i)]!))
  assert.strictEqual(said, `${blocks.length} read\n`)
})

const missing = ["bash", "curl", "openssl"].filter((program) => spawnSync(program, ["--help"]).error !== undefined)

describe("on a server", () => {
  let server: Server
  let folder = ""
  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), "parley-documents-"))
    symlinkSync(join(ROOT, "node_modules"), join(folder, "node_modules"))
    server = await sharedServer()
  })
  afterAll(async () => {
    rmSync(folder, { recursive: true, force: true })
    await server?.stop()
  })

  /** Runs blocks one after the other in one shell, as somebody does who pastes them; what each of them printed, by its place. */
  const paste = async (blocks: ReadonlyArray<Block>, at = server): Promise<ReadonlyMap<string, string>> => {
    const receiver = String(await freePort())
    const here = (text: string): string =>
      text.replaceAll("http://127.0.0.1:3000", at.url).replaceAll("ws://127.0.0.1:3000", at.wsUrl)
        .replaceAll("data/outbox", at.outbox.folder).replaceAll("8080", receiver)
    const script = ["set -eu", "trap 'kill $(jobs -p) 2> /dev/null || true' EXIT"]
    for (const block of blocks) {
      if (block.language === "js") writeFileSync(join(folder, block.file ?? assert.fail(`${place(block)} has no name`)), here(block.text))
      else script.push(`printf "\\n#### %s\\n" "${place(block)}"`, here(block.text))
    }
    const path = `${join(ROOT, "node_modules/.bin")}:${process.env["PATH"]}`
    const shell = spawn("bash", ["-s"], { cwd: folder, env: { PATH: path, HOME: folder }, stdio: ["pipe", "pipe", "pipe"] })
    let output = ""
    for (const stream of [shell.stdout, shell.stderr]) stream.setEncoding("utf8").on("data", (text: string) => (output += text))
    shell.stdin.end(script.join("\n"))
    const ended = new Promise<number | null>((resolve) => shell.on("close", resolve))
    const code = await within("the end of the commands", ended, 3 * PATIENCE_MS).finally(() => shell.kill("SIGKILL"))
    assert.strictEqual(code, 0, output)
    return new Map(output.split(/^#### /m).slice(1).map((part) => {
      const end = part.indexOf("\n")
      return [part.slice(0, end), part.slice(end + 1)]
    }))
  }

  it("the README's conversation and the guide work when they are pasted", async ({ skip }) => {
    if (missing.length > 0) skip(`needs ${missing.join(", ")}: apt-get install ${missing.join(" ")}`)
    const all = blocksOf("README.md")
    const first = all.findIndex(({ text }) => text.startsWith("BASE="))
    const last = all.findIndex(({ text }) => text.startsWith("node echo.mjs"))
    assert.isTrue(first > 0 && last > first)
    const guide = blocksOf("docs/guide.md")
    const groups = guide.find(({ text }) => text.includes("Harbour watch")) ?? assert.fail("no block makes a group")
    const groupsAgain = { ...groups, line: groups.line + 0.5 }
    const blocks = [...all.slice(first, last + 1), ...guide.flatMap((block) => block === groups ? [groups, groupsAgain] : [block])]
    const printed = await paste(blocks)
    const output = [...printed.values()].join("")
    assert.strictEqual(printed.size, blocks.filter(({ language }) => language === "sh").length, output)

    // The guide shows one refusal, and nothing else is refused.
    const refusals = Array.from(output.matchAll(/"code":"(\w+)"/g), ([, code]) => code)
    assert.deepStrictEqual(refusals, ["BLOCKED"], output)
    const about = (word: string): string => {
      const block = blocks.find(({ language, text }) => language === "sh" && text.includes(word)) ?? assert.fail(`no block has ${word}`)
      return printed.get(place(block)) ?? ""
    }
    assert.include(about("hello-1"), `"text":"Hello, bob!"`)
    assert.include(about("hello-1"), `{"acked":1}`)
    assert.include(about("hello-2"), `"text":"Hello, ada!"`)
    assert.include(about("echo.mjs"), "You wrote: Are you there?")
    assert.include(about(`"display_name":"Ada"`), `"description":"Watches the harbour"`)
    assert.include(about("/v1/directory"), `"handle":"ada"`)
    const groupsOf = [groups, groupsAgain].map((block) => {
      const text = printed.get(place(block)) ?? ""
      assert.include(text, `"mentions":["bob"]`)
      const ids = Array.from(text.matchAll(/"conversation_id":"(grp_[^"]+)"/g), ([, id]) => id)
      assert.isNotEmpty(ids)
      return ids
    })
    assert.isFalse(groupsOf[1]?.some((id) => groupsOf[0]?.includes(id)), "the block that is pasted again writes to its own group")
    assert.include(about("/v1/presence/batch"), `"custom_message":"counting ships"`)
    assert.include(about("/v1/uploads"), "Albatross, Heron\n")
    assert.include(about("/avatar"), `"avatar_url":"${server.url}/`)
    assert.match(about("receiver.mjs"), /^message\.new msg_/m)
    const [once, again] = about("lighthouse").trim().split("\n")
    assert.strictEqual(again, once)
    assert.include(about("next_cursor"), `"conversations":[{`)
  })

  it("the README's registration keeps the keys when it is pasted again, and says why an agent is refused", async ({ skip }) => {
    if (missing.length > 0) skip(`needs ${missing.join(", ")}: apt-get install ${missing.join(" ")}`)
    const block = blocksOf("README.md").find(({ text }) => text.startsWith("BASE=")) ?? assert.fail("no block registers")
    // Agents of this test alone, as the other one needs ada and bob to be new.
    const registration = { ...block, text: block.text.replace("register ada", "register adele").replace("register bob", "register bruno") }
    const shown = { ...block, text: `echo "keys: $ADA $BOB"` }
    const blocks = [registration, shown, registration, shown].map((one, i) => ({ ...one, line: i }))
    const [first, keys, second, same] = [...(await paste(blocks)).values()].map((text) => text.trim())
    assert.match(keys ?? "", /^keys: ac_\S+ ac_\S+$/)
    assert.deepStrictEqual([first, second, same], ["", "", keys])
    const other = [...(await paste([registration])).values()].join("")
    const refusals = Array.from(other.matchAll(/^There is no pending_id in: (.*)$/gm), ([, answer]) => JSON.parse(answer ?? "") as object)
    const taken = { code: "HANDLE_TAKEN", message: new HandleTaken().message }
    assert.deepStrictEqual(refusals, [taken, taken], other)
  })

  it("the secrets of Compose are made once, when the lines are pasted again too, and for the owner alone", ({ skip }) => {
    if (missing.length > 0) skip(`needs ${missing.join(", ")}: apt-get install ${missing.join(" ")}`)
    const { text } = blocksOf("docs/operations.md").find(({ text }) => text.includes("docker compose up")) ?? assert.fail("no block of Compose")
    const [making] = text.split("docker compose up")
    assert.include(readFileSync(join(ROOT, "docker-compose.yml"), "utf8"), (making ?? "").replaceAll(/^/gm, "#   ").trimEnd().replace(/\n#$/, ""))
    const made = mkdtempSync(join(folder, "compose-"))
    const env = join(made, ".env")
    writeFileSync(env, "BIND=0.0.0.0:80\nPOSTGRES_PASSWORD=kept\n")
    const paste = () => assert.strictEqual(spawnSync("bash", ["-euc", making ?? ""], { cwd: made }).status, 0)
    paste()
    const once = readFileSync(env, "utf8")
    assert.match(once, /^BIND=0\.0\.0\.0:80\nPOSTGRES_PASSWORD=kept\nRUNNER_SECRET=[0-9a-f]{32}\nS3_SECRET_ACCESS_KEY=[0-9a-f]{32}\n$/)
    paste()
    assert.strictEqual(readFileSync(env, "utf8"), once)
    assert.strictEqual(statSync(env).mode & 0o777, 0o600)
  })

  it("the guide's webhook block says that the server was not restarted with the variable, and ends", async ({ skip }) => {
    if (missing.length > 0) skip(`needs ${missing.join(", ")}: apt-get install ${missing.join(" ")}`)
    const without = await startServer({ env: { WEBHOOK_ALLOW_PRIVATE: "" } })
    try {
      const registration = blocksOf("README.md").find(({ text }) => text.startsWith("BASE=")) ?? assert.fail("no block registers")
      const guide = blocksOf("docs/guide.md")
      const [receiver, hook] = [guide.find(({ file }) => file === "receiver.mjs"), guide.find(({ text }) => text.includes("node receiver.mjs"))]
      if (receiver === undefined || hook === undefined) return assert.fail("the guide has no receiver")
      const printed = (await paste([registration, receiver, hook], without)).get(place(hook)) ?? ""
      assert.match(printed, /^There is no webhook\. .*WEBHOOK_ALLOW_PRIVATE=loopback npm start$/m)
      assert.include(printed, "There is no secret in: ")
    } finally {
      await without.stop()
    }
  })

  it("the operators' commands of operations.md work one after the other", async () => {
    const block = blocksOf("docs/operations.md").find(({ text }) => text.startsWith("npm run admin -- agents create"))
    const lines = (block ?? assert.fail("no block of operators' commands")).text.split("\n")
    assert.isAtLeast(lines.length, 10)
    for (const line of lines) {
      const [, words = ""] = /^npm run admin -- (.*?) *(?:#.*)?$/.exec(line) ?? assert.fail(line)
      const args = Array.from(words.matchAll(/"([^"]*)"|(\S+)/g), ([, quoted, plain]) => quoted ?? plain ?? "")
      const { code, stderr, stdout } = await adminHere(server.place, ...args)
      assert.strictEqual(code, 0, `${line}\n${stdout}${stderr}`)
      assert.isNotEmpty(stdout, line)
    }
  })
})
