import { spawn, spawnSync } from "node:child_process"
import { once } from "node:events"
import { mkdtemp, rm, writeFile } from "node:fs/promises"
import { createServer, request } from "node:http"
import { createServer as createProbe } from "node:net"
import { tmpdir } from "node:os"
import { join, resolve } from "node:path"
import { setTimeout as pause } from "node:timers/promises"
import { registerAgents } from "../../test/support/RegisterAgents.ts"
import { eventClients } from "./EventClients.ts"
import { CONFORMANCE, INSPECTOR, MCP_REMOTE, RECEIVERS } from "./Packages.ts"
import { handleOver } from "./Stdio.ts"
import { webhookLibraries } from "./WebhookLibraries.ts"

/**
 * `npm run test:mcp`: holds `/mcp` against programs of others, unmodified: MCP's conformance suite, its inspector,
 * mcp-remote in front of a client that starts programs, and the AI SDK and libraries of Standard Webhooks as receivers.
 * npm fetches them into a folder of its own. Exits with 1 if one fails; expected-failures.yml lists what the suite asks
 * for that this server does not have.
 */

const ROOT = resolve(import.meta.dirname, "../..")
const PACKAGES = [
  ...RECEIVERS,
  ...[CONFORMANCE, INSPECTOR, MCP_REMOTE].map(({ package: name, version }) => `${name}@${version}`)
]
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
    const passed = request({
      host: "127.0.0.1",
      port: to,
      path: url,
      method,
      headers: { ...headers, authorization: `Bearer ${key}` }
    }, (got) => {
      answer.writeHead(got.statusCode ?? 502, got.headers)
      got.pipe(answer)
    })
    passed.on("error", () => answer.destroy())
    answer.on("close", () => passed.destroy())
    asked.pipe(passed)
  }).listen(from, "127.0.0.1")

/** Runs a program of the folder; not in one go, because the proxy before the server answers meanwhile. */
const run = async (folder: string, program: string, args: ReadonlyArray<string>) => {
  const child = spawn(join(folder, "node_modules/.bin", program), args, {
    cwd: folder,
    stdio: ["ignore", "pipe", "pipe"],
    timeout: MINUTES_10
  })
  let output = ""
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding("utf8").on("data", (text: string) => (output += text))
  const [code] = await once(child, "close")
  return { fine: code === 0, output }
}

const conformance = async (folder: string, url: string): Promise<string> => {
  const expected = join(import.meta.dirname, "expected-failures.yml")
  const args = [
    "server",
    "--url",
    url,
    "--suite",
    "all",
    "--expected-failures",
    expected,
    "-o",
    join(folder, "results")
  ]
  const { fine, output } = await run(folder, "conformance", args)
  return fine ? "" : output.slice(output.lastIndexOf("SUMMARY") + 1).slice(-6_000)
}

const inspector = async (folder: string, url: string, key: string): Promise<string> => {
  const args = [
    "--cli",
    url,
    "--transport",
    "http",
    "--method",
    "tools/list",
    "--header",
    `Authorization: Bearer ${key}`
  ]
  const { fine, output } = await run(folder, "mcp-inspector", args)
  return fine && output.includes("agentchat_wait_for_messages") ? "" : output.slice(-2_000)
}

const remote = async (folder: string, url: string, key: string, handle: string): Promise<string> => {
  const shown = await handleOver({
    command: join(folder, "node_modules/.bin/mcp-remote"),
    args: [url, "--transport", "http-only", "--header", "Authorization:${AUTH}"],
    env: { AUTH: `Bearer ${key}`, PATH: process.env["PATH"] ?? "", HOME: folder },
    cwd: folder
  }).catch(String)
  return shown === handle ? "" : `it is ${shown}, not ${handle}`
}

const folder = await mkdtemp(join(tmpdir(), "parley-mcp-"))
const [port, front] = [await freePort(), await freePort()]
const { HOME, PATH } = process.env
await writeFile(join(folder, "package.json"), "{}")
spawnSync("npm", ["install", "--no-audit", "--no-fund", ...PACKAGES], { cwd: folder, stdio: "inherit" })
const server = spawn(process.execPath, [join(ROOT, "runners/parley.js"), "start"], {
  // The suite checks the names under which it calls: those of the proxy before the server.
  env: {
    HOME,
    PATH,
    DATA_DIR: join(folder, "data"),
    HOST: "127.0.0.1",
    PORT: String(port),
    PUBLIC_URL: `http://127.0.0.1:${front}`,
    WEBHOOK_ALLOW_PRIVATE: "loopback"
  },
  stdio: ["ignore", "ignore", "inherit"]
})
process.once("exit", () => server.kill("SIGKILL"))
for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => process.exit(130))
const direct = `http://127.0.0.1:${port}`
while (!await fetch(`${direct}/v1/ready`).then(({ ok }) => ok, () => false)) await pause(100)
const [agent, writer] = await registerAgents(direct, join(folder, "data/outbox"), ["inspected", "writer"])
if (agent === undefined || writer === undefined) throw new Error("no agents")
const { handle, key } = agent
const proxy = withKey(front, port, key)

verdict("mcp-remote in front of a client that starts programs", await remote(folder, `${direct}/mcp`, key, handle))
verdict("the inspector lists the tools", await inspector(folder, `${direct}/mcp`, key))
verdict(
  "the AI SDK subscribes to events, and receives and verifies one",
  await eventClients(folder, direct, [writer, agent])
)
// The writer has written, so the agent may answer.
verdict(
  "the libraries of Standard Webhooks verify posts of webhooks",
  await webhookLibraries(folder, direct, [agent, writer])
)
verdict("the conformance suite fails only where expected", await conformance(folder, `http://127.0.0.1:${front}/mcp`))

proxy.close()
server.kill()
await once(server, "close")
await rm(folder, { recursive: true, force: true })
process.exit(failures === 0 ? 0 : 1)
