import { createServer } from "node:http"
import { createRequire } from "node:module"
import type { AddressInfo } from "node:net"
import { join } from "node:path"
import { setTimeout as pause } from "node:timers/promises"

/** An answer of which this file looks at some fields only. */
type Json = ReturnType<typeof JSON.parse>

interface Agent {
  readonly handle: string
  readonly key: string
}

/** A store of subscriptions in memory, as the AI SDK asks for it. */
const storeOf = () => {
  const rows = new Map<string, Json>()
  return {
    rows,
    get: async (key: string) => rows.get(key),
    getById: async (id: string) => [...rows.values()].find((row) => row.id === id),
    set: async (row: Json) => void rows.set(row.key, row),
    update: async (key: string, patch: object) => void (rows.has(key) && rows.set(key, { ...rows.get(key), ...patch })),
    delete: async (key: string) => void rows.delete(key)
  }
}

const until = async (what: string, ask: () => boolean): Promise<void> => {
  for (let i = 0; i < 600; i++) {
    if (ask()) return
    await pause(100)
  }
  throw new Error(`waited in vain for ${what}`)
}

/**
 * Subscribes with the AI SDK as it is in npm, and receives with its own verifier and with the one of Standard Webhooks.
 * `folder` has both packages, and the server may post to loopback addresses. Returns the problem, or an empty text.
 */
export const eventClients = async (
  folder: string,
  base: string,
  [from, to]: readonly [Agent, Agent]
): Promise<string> => {
  const load = createRequire(join(folder, "package.json"))
  const { createMCPClient, experimental_createMCPEventWebhook } = await import(load.resolve("@ai-sdk/mcp"))
  const { Webhook } = await import(load.resolve("standardwebhooks"))
  const store = storeOf()
  const events: Array<Json> = []
  const problems: Array<string> = []
  let verified = 0
  const receive = experimental_createMCPEventWebhook({
    store,
    onEvent: async ({ event }: Json) => void events.push(event),
    onError: (error: unknown) => void problems.push(String(error))
  })
  const receiver = createServer((asked, answer) => {
    let text = ""
    asked.setEncoding("utf8").on("data", (part: string) => text += part).on("end", () => {
      const url = `http://${asked.headers.host}${asked.url}`
      const headers = asked.headers as Record<string, string>
      for (const { delivery: { secret } } of store.rows.values()) {
        new Webhook(secret).verify(text, headers)
        verified++
      }
      receive(new Request(url, { method: "POST", headers, body: text })).then(async (response: Response) =>
        answer.writeHead(response.status, { "content-type": "application/json" }).end(await response.text())
      )
    })
  }).listen(0, "127.0.0.1")
  const say = async (text: string) => {
    const response = await fetch(`${base}/v1/messages`, {
      method: "POST",
      headers: { authorization: `Bearer ${from.key}`, "content-type": "application/json" },
      body: JSON.stringify({ to: to.handle, client_msg_id: `events-${text}`, content: { text } })
    })
    return ((await response.json()) as Json).id
  }
  try {
    const client = await createMCPClient({
      transport: { type: "http", url: `${base}/mcp`, headers: { authorization: `Bearer ${to.key}` } },
      experimental_events: { store }
    })
    const { events: listed } = await client.experimental_events.list()
    if (!listed.some(({ name }: Json) => name === "message.received")) return `the list has ${JSON.stringify(listed)}`
    const url = `http://127.0.0.1:${(receiver.address() as AddressInfo).port}/hook`
    const delivery = { mode: "webhook", url, allowInsecureLocalhost: true }
    const made = await client.experimental_events.subscribe({ name: "message.received", arguments: {}, delivery })
    const id = await say("hello")
    await until("the event", () => events.length > 0)
    if (events[0].data.message_id !== id) return `it received ${JSON.stringify(events)}`
    const refreshed = await client.experimental_events.refresh({ key: [...store.rows.keys()][0] })
    if (refreshed.id !== made.id) return "the refresh has another id"
    await client.experimental_events.unsubscribe({ key: [...store.rows.keys()][0] })
    await client.close()
    return verified === 0 ? "Standard Webhooks verified nothing" : problems.join("\n")
  } catch (error) {
    return `${error instanceof Error ? error.stack : String(error)}\n${problems.join("\n")}`
  } finally {
    receiver.closeAllConnections()
    receiver.close()
  }
}
