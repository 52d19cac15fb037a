import { HandleTaken } from "#domain/registration/Code"
import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { spawn, spawnSync } from "node:child_process"
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync
} from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { freePort } from "../../runners/local/FreePort.ts"
import { adminHere } from "../support/Admin.ts"
import { LONGEST_WAIT_MS, within } from "../support/Eventually.ts"
import { PROGRAM, type Server, sharedServer, startServer } from "../support/Server.ts"
import { type Block, DOCUMENTS, parse, ROOT } from "./Markdown.ts"

const blocksOf = (document: string): ReadonlyArray<Block> => parse(document).blocks
const place = ({ document, line }: Block): string => `${document}:${line}`

it("every block of shell commands is one that a shell can read", () => {
  const blocks = DOCUMENTS.flatMap(blocksOf).filter(({ language }) => language === "sh")
  assert.isAbove(blocks.length, 20)
  // One shell starts the others: a process as large as this one takes a long time to start each.
  const each =
    `i=0; while IFS= read -r -d "" block; do bash -n <<< "$block" 2>&1 || echo "in block $i"; i=$((i + 1)); done; echo "$i read"`
  const { stdout } = spawnSync("bash", ["-c", each], {
    input: blocks.map(({ text }) => `${text}\0`).join(""),
    encoding: "utf8"
  })
  const said = stdout.replaceAll(/in block (\d+)/g, (_, i: string) => place(blocks[Number(i)]!))
  assert.strictEqual(said, `${blocks.length} read\n`)
})

it("the URL for a restored PostgreSQL differs from the server's in the name of the database alone", () => {
  const line = blocksOf("docs/operations.md").flatMap(({ text }) => text.split("\n")).find((line) =>
    line.startsWith("NEW=")
  )
  for (
    const [url, restored] of [
      ["postgres://parley@localhost/parley", "postgres://parley@localhost/parley_restored"],
      ["postgresql://a:p%2Fw@[::1]:5432/parley", "postgresql://a:p%2Fw@[::1]:5432/parley_restored"],
      [
        "postgres://parley@db/parley?sslmode=verify-full&sslrootcert=/etc/ssl/ca.pem",
        "postgres://parley@db/parley_restored?sslmode=verify-full&sslrootcert=/etc/ssl/ca.pem"
      ],
      ["postgresql:///parley?host=/var/run/postgresql", "postgresql:///parley_restored?host=/var/run/postgresql"],
      ["postgres://parley@db?sslrootcert=/ca.pem", "postgres://parley@db/parley_restored?sslrootcert=/ca.pem"]
    ] as const
  ) {
    const { stdout } = spawnSync("sh", ["-euc", `${line}\nprintf '%s' "$NEW"`], {
      encoding: "utf8",
      env: { ...process.env, DATABASE_URL: url }
    })
    assert.strictEqual(stdout, restored)
  }
})

it("the nightly backup of systemd removes old backups, and what interrupted ones have left, but nothing else", () => {
  const unit = readFileSync(join(ROOT, "deploy/systemd/parley-backup.service"), "utf8")
  const finds = Array.from(unit.matchAll(/^ExecStart(?:Pre|Post)=(.*)$/gm), ([, line = ""]) => line)
  assert.lengthOf(finds, 2)
  const folder = mkdtempSync(join(tmpdir(), "parley-nightly-"))
  try {
    const old = [
      "parley-2026-11-01-030000.tar",
      "parley-2026-11-02-030000.tar.unfinished",
      "notes.txt",
      "parley-1.tar.gpg"
    ]
    const fresh = ["parley-2026-11-28-030000.tar", "parley-2026-11-28-040000.tar.unfinished"]
    for (const name of [...old, ...fresh]) writeFileSync(join(folder, name), "")
    for (const name of old) utimesSync(join(folder, name), 0, 0)
    for (const find of finds) spawnSync("sh", ["-euc", find.replace("/var/backups/parley", folder)])
    assert.deepStrictEqual(readdirSync(folder).sort(), ["notes.txt", "parley-1.tar.gpg", ...fresh])
  } finally {
    rmSync(folder, { recursive: true })
  }
})

/** The package that `npm pack` makes. */
const PACKED = "parley-0.2.0.tgz"

const missing = ["bash", "curl", "openssl", "npm"].filter((program) =>
  spawnSync(program, ["--help"]).error !== undefined
)

/** A curl that calls again while a server on a busy machine answers 503 `UNAVAILABLE`. */
const PATIENT_CURL = `curl() {
  for try in 1 2 3 4 5 6 7 8; do
    answer=$(command curl "$@"; echo "end $?")
    case "$answer" in *'"code":"UNAVAILABLE"'*) sleep 1 ;; *) break ;; esac
  done
  printf %s "\${answer%end *}"
  return "\${answer##*end }"
}`

/** README's blocks that a shell or Node runs, without the first one, which starts the server. */
const conversation = (): ReadonlyArray<Block> =>
  blocksOf("README.md").filter(({ language, text }) => language !== "" && !text.startsWith("npm ci\n"))

const blockOf = (blocks: ReadonlyArray<Block>, word: string): Block =>
  blocks.find(({ language, text }) => language === "sh" && text.includes(word)) ?? assert.fail(`no block has ${word}`)

describe("on a server", () => {
  let server: Server
  let folder = ""
  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), "parley-documents-"))
    server = await sharedServer()
  })
  afterAll(async () => {
    rmSync(folder, { recursive: true, force: true })
    await server?.stop()
  })

  /**
   * A folder in which a person works who has a checkout: `npm run admin` and the packages are there, and `data` is
   * made.
   */
  const checkout = (): string => {
    const made = mkdtempSync(join(folder, "checkout-"))
    symlinkSync(join(ROOT, "node_modules"), join(made, "node_modules"))
    writeFileSync(
      join(made, "package.json"),
      JSON.stringify({ scripts: { admin: `exec node ${PROGRAM} admin` } })
    )
    mkdirSync(join(made, "data"))
    return made
  }

  /**
   * Runs blocks one after the other in a new shell, as a person does who pastes them; what each of them printed, by its
   * place.
   */
  const paste = async (
    blocks: ReadonlyArray<Block>,
    { at = server, cwd, shell = "bash" }: { readonly at?: Server; readonly cwd: string; readonly shell?: "bash" | "sh" }
  ): Promise<ReadonlyMap<string, string>> => {
    const receiver = String(await freePort())
    const here = (text: string): string =>
      text.replaceAll("http://127.0.0.1:3000", at.url).replaceAll("ws://127.0.0.1:3000", at.wsUrl)
        .replaceAll("data/outbox", at.outbox.folder).replaceAll("8080", receiver)
    const script = ["set -eu", "trap 'kill $(jobs -p) 2> /dev/null || true' EXIT", PATIENT_CURL]
    for (const block of blocks) {
      if (block.language === "js")
        writeFileSync(join(cwd, block.file ?? assert.fail(`${place(block)} has no name`)), here(block.text))
      else script.push(`printf "\\n#### %s\\n" "${place(block)}"`, here(block.text))
    }
    const path = `${join(ROOT, "node_modules/.bin")}:${process.env["PATH"]}`
    const env = { ...at.place, PATH: path, HOME: folder, npm_config_update_notifier: "false" }
    const child = spawn(shell, ["-s"], { cwd, env, stdio: ["pipe", "pipe", "pipe"] })
    let output = ""
    for (const stream of [child.stdout, child.stderr])
      stream.setEncoding("utf8").on("data", (text: string) => (output += text))
    // Through one pipe, so that errors come between the lines before and after them.
    child.stdin.end(["exec 2>&1", ...script].join("\n"))
    const ended = new Promise<number | null>((resolve) => child.on("close", resolve))
    const code = await within("the end of the commands", ended, 3 * LONGEST_WAIT_MS).finally(() =>
      child.kill("SIGKILL")
    )
    assert.strictEqual(code, 0, output)
    return new Map(
      output.split(/^#### /m).slice(1).map((part) => {
        const end = part.indexOf("\n")
        return [part.slice(0, end), part.slice(end + 1)]
      })
    )
  }

  it("the README's blocks work in a new terminal, twice in a row, and so does the guide after them", async ({ skip }) => {
    if (missing.length > 0) skip(`needs ${missing.join(", ")}: apt-get install ${missing.join(" ")}`)
    const cwd = checkout()
    const readme = conversation()
    const guide = blocksOf("docs/guide.md")
    const groups = guide.find(({ text }) => text.includes("Harbour watch")) ?? assert.fail("no block makes a group")
    const groupsAgain = { ...groups, line: groups.line + 0.5 }
    const blocks = [...readme, ...guide.flatMap((block) => block === groups ? [groups, groupsAgain] : [block])]
    const first = await paste(readme, { cwd, shell: "sh" })
    const printed = await paste(blocks, { cwd })
    const output = [...printed.values()].join("")
    assert.strictEqual(printed.size, blocks.filter(({ language }) => language === "sh").length, output)

    // The guide shows one refusal, and nothing else is refused.
    const refusals = (text: string) => Array.from(text.matchAll(/"code":"(\w+)"/g), ([, code]) => code)
    assert.deepStrictEqual(refusals([...first.values()].join("")), [])
    assert.deepStrictEqual(refusals(output), ["BLOCKED"], output)
    const about = (word: string, of = printed): string => of.get(place(blockOf(blocks, word))) ?? ""
    assert.match(about("agents create ada bob", first), /^ada  ac_\S+\nbob  ac_\S+\n\{.*"text":"Hello, bob!"/)
    assert.include(about("hello-2", first), `{"acked":1}`)
    assert.match(about("register cleo", first), /^cleo  ac_\S+\n$/m)
    // The second time, the keys are kept, and a repeated send gets the first message.
    const idOf = (text: string) => /"id":"(msg_[^"]+)"/.exec(text)?.[1] ?? assert.fail(text)
    assert.notInclude(about("agents create ada bob"), "ac_")
    assert.strictEqual(idOf(about("agents create ada bob")), idOf(about("agents create ada bob", first)))
    assert.match(about("hello-2"), /^There is no delivery_id in: \[\]$/m)
    assert.strictEqual(about("register cleo").trim(), about("register cleo", first).trim())
    for (const  of of[first, printed]) assert.include(about("echo.mjs", of), "You wrote: Are you there?")

    assert.include(about(`"display_name":"Ada"`), `"description":"Watches the harbour"`)
    assert.include(about("/v1/directory"), `"handle":"ada"`)
    const groupsOf = [groups, groupsAgain].map((block) => {
      const text = printed.get(place(block)) ?? ""
      assert.include(text, `"mentions":["bob"]`)
      const ids = Array.from(text.matchAll(/"conversation_id":"(grp_[^"]+)"/g), ([, id]) => id)
      assert.isNotEmpty(ids)
      return ids
    })
    assert.isFalse(
      groupsOf[1]?.some((id) => groupsOf[0]?.includes(id)),
      "the block that is pasted again writes to its own group"
    )
    assert.include(about("/v1/presence/batch"), `"custom_message":"counting ships"`)
    assert.include(about("/v1/uploads"), "Albatross, Heron\n")
    assert.include(about("/avatar"), `"avatar_url":"${server.url}/`)
    assert.match(about("receiver.mjs"), /^message\.new msg_/m)
    const [once, again] = about("lighthouse").trim().split("\n")
    assert.strictEqual(again, once)
    assert.include(about("next_cursor"), `"conversations":[{`)

    // What they have written is in folders that git ignores.
    const written = readdirSync(cwd, { recursive: true, encoding: "utf8" }).filter((name) =>
      !/^(node_modules|package\.json)/.test(name) && name !== "data"
    )
    assert.includeMembers(written, ["data/keys", "data/echo.mjs", "data/receiver.mjs", "data/ships.txt"])
    const ignored = spawnSync("git", ["check-ignore", "--no-index", "--stdin"], {
      cwd: ROOT,
      input: [...written, PACKED].join("\n"),
      encoding: "utf8"
    })
    // Without git, or outside its checkout, nobody can commit them.
    if (ignored.status === 0 || ignored.status === 1)
      assert.deepStrictEqual(ignored.stdout.trim().split("\n"), [...written, PACKED])
  })

  it("the README's registration says why an agent is refused", async ({ skip }) => {
    if (missing.length > 0) skip(`needs ${missing.join(", ")}: apt-get install ${missing.join(" ")}`)
    const cwd = checkout()
    const [block, second] = [blockOf(conversation(), "register cleo"), blockOf(conversation(), "field() {")]
    const [field = assert.fail("no field()")] = /^field\(\) \{[^]*?^\}$/m.exec(second.text) ?? []
    // An agent of this test alone, as the other one needs cleo to be new.
    const registration = { ...block, text: block.text.replaceAll("cleo", "clio").replace(/\ngrep clio .*$/, "") }
    const shown = { ...block, text: "wc -l < data/keys" }
    const before = { ...block, text: `BASE=${server.url}\n${field}` }
    const printed = await paste(
      [before, registration, shown, { ...block, text: ": > data/keys" }, {
        ...registration,
        text: `${registration.text} || true`
      }, shown]
        .map((one, i) => ({ ...one, line: i })),
      { cwd }
    )
    const [, made, lines, , refused = "", left] = [...printed.values()].map((text) => text.trim())
    assert.deepStrictEqual([made, lines, left], ["", "1", "0"])
    assert.deepStrictEqual(JSON.parse(/^There is no pending_id in: (.*)$/.exec(refused)?.[1] ?? refused), {
      code: "HANDLE_TAKEN",
      message: new HandleTaken().message
    })
  })

  it("the commands in the README's sentences exist, and its blocks are those that are tried here", async () => {
    const { prose } = parse("README.md")
    const { scripts, version } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8")) as {
      readonly scripts: Readonly<Record<string, string>>
      readonly version: string
    }
    assert.include(prose, `npx ./${PACKED}`)
    assert.strictEqual(PACKED, `parley-${version}.tgz`)
    const named = Array.from(
      prose.matchAll(/`(?:[A-Z_]+=\S+ )*npm (?:run )?([\w:]+)(?: -- ([^`]*))?`/g),
      ([, name = "", rest]) => ({ name, rest })
    )
    assert.isAtLeast(named.length, 6)
    for (const { name, rest } of named) {
      if (!["ci", "pack", "install"].includes(name)) assert.property(scripts, name)
      if (name !== "admin") continue
      const tried = await adminHere({}, ...(rest ?? "").split(" ").filter((word) => word !== "--help"), "--help")
      assert.strictEqual(tried.code, 0, rest)
    }
    const others = blocksOf("README.md").filter((block) => !conversation().some(({ line }) => line === block.line))
    assert.deepStrictEqual(others.map(({ text }) => text.split(" ").slice(0, 3).join(" ")), [
      "npm ci\nnpm start",
      "claude mcp add"
    ])
  })

  it("the secrets of Compose are made once, when the lines are pasted again too, and for the owner alone", ({ skip }) => {
    if (missing.length > 0) skip(`needs ${missing.join(", ")}: apt-get install ${missing.join(" ")}`)
    const { text } = blocksOf("docs/operations.md").find(({ text }) => text.includes("docker compose up")) ??
      assert.fail("no block of Compose")
    const [making] = text.split("docker compose up")
    assert.include(
      readFileSync(join(ROOT, "docker-compose.yml"), "utf8"),
      (making ?? "").replaceAll(/^/gm, "#   ").trimEnd().replace(/\n#$/, "")
    )
    const made = mkdtempSync(join(folder, "compose-"))
    const env = join(made, ".env")
    writeFileSync(env, "BIND=0.0.0.0:80\nPOSTGRES_PASSWORD=kept\n")
    const paste = () => assert.strictEqual(spawnSync("bash", ["-euc", making ?? ""], { cwd: made }).status, 0)
    paste()
    const once = readFileSync(env, "utf8")
    assert.match(
      once,
      /^BIND=0\.0\.0\.0:80\nPOSTGRES_PASSWORD=kept\nRUNNER_SECRET=[0-9a-f]{32}\nS3_SECRET_ACCESS_KEY=[0-9a-f]{32}\n$/
    )
    paste()
    assert.strictEqual(readFileSync(env, "utf8"), once)
    assert.strictEqual(statSync(env).mode & 0o777, 0o600)
  })

  it("the guide's webhook block says that the server was not restarted with the variable, and ends", async ({ skip }) => {
    if (missing.length > 0) skip(`needs ${missing.join(", ")}: apt-get install ${missing.join(" ")}`)
    const without = await startServer({ env: { WEBHOOK_ALLOW_PRIVATE: "" } })
    try {
      const guide = blocksOf("docs/guide.md")
      const [receiver, hook] = [
        guide.find(({ file }) => file === "data/receiver.mjs"),
        blockOf(guide, "node data/receiver.mjs")
      ]
      if (receiver === undefined) return assert.fail("the guide has no receiver")
      const before = [blockOf(conversation(), "agents create"), blockOf(conversation(), "field() {")]
      const printed = (await paste([...before, receiver, hook], { at: without, cwd: checkout() })).get(place(hook)) ??
        ""
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
