import { Client, type CallToolResult } from "@modelcontextprotocol/client"
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio"
import { spawn, spawnSync } from "node:child_process"
import { once } from "node:events"
import { mkdtemp, rm, writeFile } from "node:fs/promises"
import { createServer, request } from "node:http"
import { createServer as createProbe } from "node:net"
import { tmpdir } from "node:os"
import { join, resolve } from "node:path"
import { setTimeout as pause } from "node:timers/promises"
import { registerAgents } from "../../test/support/RegisterAgents.ts"

/**
 * `npm run test:mcp`: holds `/mcp` against programs of others, unmodified: MCP's conformance suite, its inspector, and
 * mcp-remote in front of a client that starts programs. npm fetches them into a folder of its own. Exits with 1 if one fails;
 * expected-failures.yml lists what the suite asks for that this server does not have.
 */

const ROOT = resolve(import.meta.dirname, "../..")
const PACKAGES = ["@modelcontextprotocol/conformance@0.2.0-alpha.12", "@modelcontextprotocol/inspector@2.12.0", "mcp-remote@0.15.1"]
const MINUTES_10 = 600_000

let failures = 0
const verdict = (what: string, problem: string): void => {
  if (problem !== "") failures++
  console.log(`${problem === "" ? "✓" : "✗"} ${what}${problem === "" ? "" : `\n${problem}`}`)
}

const freePort = async (): Promise<number> => {
  const probe = createProbe().listen(0, "127.0.0.1")
  await once(probe, "listening")
  const address = probe.address()
  probe.close()
  return typeof address === "object" && address !== null ? address.port : 0
}

/** Adds the agent's key to every request: the suite knows no header of its own. */
const withKey = (from: number, to: number, key: string) =>
  createServer((asked, answer) => {
    const { headers, method, url } = asked
    const passed = request({ host: "127.0.0.1", port: to, path: url, method, headers: { ...headers, authorization: `Bearer ${key}` } }, (got) => {
      answer.writeHead(got.statusCode ?? 502, got.headers)
      got.pipe(answer)
    })
    passed.on("error", () => answer.destroy())
    answer.on("close", () => passed.destroy())
    asked.pipe(passed)
  }).listen(from, "127.0.0.1")

const conformance = (folder: string, url: string): string => {
  const { status, stdout, stderr } = spawnSync(
    join(folder, "node_modules/.bin/conformance"),
    ["server", "--url", url, "--suite", "all", "--expected-failures", join(import.meta.dirname, "expected-failures.yml"), "-o", join(folder, "results")],
    { cwd: folder, encoding: "utf8", timeout: MINUTES_10 }
  )
  return status === 0 ? "" : `${stdout.split("\n").filter((line) => /^[✗✓]|expected|Total/i.test(line)).join("\n")}\n${stderr.slice(-2_000)}`
}

const inspector = (folder: string, url: string, key: string): string => {
  const { status, stdout, stderr } = spawnSync(
    join(folder, "node_modules/.bin/mcp-inspector"),
    ["--cli", url, "--transport", "http", "--method", "tools/list", "--header", `Authorization: Bearer ${key}`],
    { cwd: folder, encoding: "utf8", timeout: MINUTES_10 }
  )
  return status === 0 && stdout.includes("agentchat_wait_for_messages") ? "" : `${stdout.slice(-1_000)}\n${stderr.slice(-1_000)}`
}

const remote = async (folder: string, url: string, key: string, handle: string): Promise<string> => {
  const client = new Client({ name: "parley-test", version: "1.0.0" })
  try {
    await client.connect(
      new StdioClientTransport({
        command: join(folder, "node_modules/.bin/mcp-remote"),
        args: [url, "--transport", "http-only", "--header", "Authorization:${AUTH}"],
        env: { AUTH: `Bearer ${key}`, PATH: process.env["PATH"] ?? "", HOME: folder },
        cwd: folder
      })
    )
    const status = await client.callTool({ name: "agentchat_get_my_status", arguments: {} }) as CallToolResult
    const shown = (status.structuredContent as { readonly handle?: string } | undefined)?.handle
    return shown === handle ? "" : `it is ${shown}, not ${handle}`
  } catch (error) {
    return String(error)
  } finally {
    await client.close()
  }
}

const folder = await mkdtemp(join(tmpdir(), "parley-mcp-"))
const [port, front] = [await freePort(), await freePort()]
const { HOME, PATH } = process.env
await writeFile(join(folder, "package.json"), "{}")
spawnSync("npm", ["install", "--no-audit", "--no-fund", ...PACKAGES], { cwd: folder, stdio: "inherit" })
const server = spawn(process.execPath, [join(ROOT, "runners/parley.js"), "start"], {
  // The suite checks the names under which it calls: those of the proxy before the server.
  env: { HOME, PATH, DATA_DIR: join(folder, "data"), HOST: "127.0.0.1", PORT: String(port), PUBLIC_URL: `http://127.0.0.1:${front}` },
  stdio: ["ignore", "ignore", "inherit"]
})
process.once("exit", () => server.kill("SIGKILL"))
const direct = `http://127.0.0.1:${port}`
while (!await fetch(`${direct}/v1/ready`).then(({ ok }) => ok, () => false)) await pause(100)
const [agent] = await registerAgents(direct, join(folder, "data/outbox"), ["inspected"])
const { handle = "", key = "" } = agent ?? {}
const proxy = withKey(front, port, key)

verdict("mcp-remote in front of a client that starts programs", await remote(folder, `${direct}/mcp`, key, handle))
verdict("the inspector lists the tools", inspector(folder, `${direct}/mcp`, key))
verdict("the conformance suite fails only where expected", conformance(folder, `http://127.0.0.1:${front}/mcp`))

proxy.close()
server.kill()
await once(server, "close")
await rm(folder, { recursive: true, force: true })
process.exit(failures === 0 ? 0 : 1)
