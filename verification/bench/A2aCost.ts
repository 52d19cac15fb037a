import { randomUUID } from "node:crypto"
import { rm } from "node:fs/promises"
import { makeDataDir, newAgent, startServer } from "../../test/support/Server.ts"
import { cpuOf } from "./CpuTime.ts"

/**
 * Compares the cost of A2A requests with that of a plain send, in one run on one standalone server: microseconds of the
 * server's processor time for each request. Rounds of the kinds alternate, so that a machine that is slow for a while
 * is slow for all kinds. `node --import ./runners/require-node.js verification/bench/A2aCost.ts`
 */
const ROUNDS = 7
const EACH = 1_000
const AT_ONCE = 16

const dataDir = await makeDataDir()
const server = await startServer({ dataDir })
const [alice, bob] = await Promise.all([newAgent(server, "alice"), newAgent(server, "bob")])

const request = async (path: string, body?: object): Promise<unknown> => {
  const response = await fetch(`${server.url}${path}`, {
    headers: { "authorization": `Bearer ${alice.key}`, "content-type": "application/json", "a2a-version": "1.0" },
    ...(body === undefined ? {} : { method: "POST", body: JSON.stringify(body) })
  })
  if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`)
  return response.json()
}

const text = "x".repeat(160)
const plain = () => request("/v1/messages", { to: bob.handle, client_msg_id: randomUUID(), content: { text } })
await plain()
await bob.http.post("/v1/messages", { to: alice.handle, client_msg_id: randomUUID(), content: { text } })

let last = ""
const message = () => ({ messageId: randomUUID(), role: "ROLE_USER", parts: [{ text }] })
const kinds: Readonly<Record<string, () => Promise<unknown>>> = {
  "plain send": plain,
  "SendMessage, HTTP+JSON": async () => {
    const { task } = await request(`/a2a/${bob.handle}/message:send`, {
      message: message(),
      configuration: { returnImmediately: true }
    }) as {
      task: { id: string }
    }
    last = task.id
  },
  "SendMessage, JSON-RPC": () =>
    request(`/a2a/${bob.handle}`, {
      jsonrpc: "2.0",
      id: 1,
      method: "SendMessage",
      params: { message: message(), configuration: { returnImmediately: true } }
    }),
  "GET card, /v1": () => request(`/v1/agents/${bob.handle}`),
  "GET card, A2A": () => request(`/a2a/${bob.handle}/.well-known/agent-card.json`)
}

const round = async (run: () => Promise<unknown>, times: number): Promise<number> => {
  const before = cpuOf(server.process.pid ?? 0)
  let left = times
  await Promise.all(Array.from({ length: AT_ONCE }, async () => {
    while (left-- > 0) await run()
  }))
  return (cpuOf(server.process.pid ?? 0) - before) / times
}

const samples = new Map<string, Array<number>>(Object.keys(kinds).map((kind) => [kind, []]))
/** Replies to the waiting messages, so that the backlog stays small and every task ends. */
const settle = async (): Promise<void> => {
  for (;;) {
    const waiting = (await bob.http.get("/v1/messages/sync?limit=500")).body as ReadonlyArray<{ delivery_id: string }>
    const through = waiting.at(-1)
    if (through === undefined) return
    await bob.http.post("/v1/messages/sync/ack", { last_delivery_id: through.delivery_id })
  }
}
for (let i = -1; i < ROUNDS; i++) {
  for (const [kind, run] of Object.entries(kinds)) {
    const cost = await round(run, EACH)
    if (i >= 0) samples.get(kind)?.push(cost)
    if (kind.includes("end")) await settle()
  }
}
const first = await round(() => request(`/a2a/${bob.handle}/tasks/${last}?historyLength=1`), 1)
const many = await round(() => request(`/a2a/${bob.handle}/tasks/${last}?historyLength=1`), 200)

const sorted = (values: ReadonlyArray<number>) => values.toSorted((one, other) => one - other)
const median = (values: ReadonlyArray<number>) => sorted(values)[values.length >> 1]!
const base = median(samples.get("plain send") ?? [])
for (const [kind, values] of samples) {
  const [low, high] = [sorted(values)[0]!, sorted(values).at(-1)!]
  console.log(
    `${kind.padEnd(24)} ${median(values).toFixed(0).padStart(5)} µs (${low.toFixed(0)}–${high.toFixed(0)}), ${
      (median(values) / base).toFixed(2)
    } of a plain send`
  )
}
console.log(
  `GetTask, the first to read ${(2 * (ROUNDS + 1) * EACH).toLocaleString()} tasks: ${
    (first / 1_000).toFixed(0)
  } ms; then ${many.toFixed(0)} µs`
)
await server.stop()
await rm(dataDir, { recursive: true })
