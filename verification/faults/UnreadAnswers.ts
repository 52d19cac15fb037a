import { getOf, postOf, upgradeOf } from "../../test/support/Unread.ts"
import { Crowd } from "./Crowd.ts"
import { again, ask, each, type Fault, memoryOf, metricOf } from "./Fault.ts"
import type { LoadAgent } from "./Load.ts"
import type { SiteNode } from "./Site.ts"

const CONNECTIONS = 2_000
const PAIRS = 4
const MESSAGES = 200
const TEXT = "unread ".repeat(4_000)
/**
 * The limit of V8's heap, in MB. Bytes that peers make a node hold are outside of the heap, except for the objects
 * behind answers.
 */
const HEAP_MB = 512
/** The bound of docs/operations.md for the default settings. */
const MEMORY_BOUND = 900_000_000
/** A node that never held this many bytes was not tested. */
const LEAST_HELD = 16 * 1024 * 1024
/** Milliseconds for which a connection stays, which is longer than a request waits for its slot. */
const STAYS_MS = 15_000
const EVERY_MS = 50
/** Connections to a node that are opened each time. */
const AT_ONCE = 5

/** An agent that does not read, with a conversation of 5.6 MB and a task that another agent has for it. */
interface Reader extends LoadAgent {
  readonly conversation: string
  readonly called: string
  readonly task: string
}

/** The requests whose answers are not read, one kind after the other. */
const asks: ReadonlyArray<(reader: Reader) => string> = [
  ({ conversation, key }) => getOf(`/v1/messages/${conversation}?limit=200`, key),
  ({ key }) => getOf("/v1/messages/sync?limit=500", key),
  ({ conversation, key }) => toolOf("agentchat_get_conversation", { conversation_id: conversation, limit: 100 }, key),
  ({ key }) => toolOf("agentchat_wait_for_messages", { limit: 50 }, key),
  ({ called, key, task }) => getOf(`/a2a/${called}/tasks/${task}:subscribe?A2A-Version=1.0`, key),
  ({ key }) => upgradeOf(key),
  () => getOf("/docs")
]

const toolOf = (name: string, args: object, key: string): string =>
  postOf("/mcp", { jsonrpc: "2.0", id: 1, method: "tools/call", params: { name, arguments: args } }, key)

/** Two agents talk, and each has its half of the messages undelivered; the first one has a task for the second one. */
const talk = async (node: SiteNode, one: LoadAgent, other: LoadAgent): Promise<Reader> => {
  const send = async (at: number): Promise<string> => {
    const [from, to] = at % 2 === 0 ? [one, other] : [other, one]
    const { body, status } = await ask(node, from, "POST", "/v1/messages", {
      to: to.handle,
      client_msg_id: `unread-${at}`,
      content: { text: TEXT }
    })
    if (status !== 201)
      throw new Error(`a message for the unread answers was answered with ${status}: ${JSON.stringify(body)}`)
    return String(body["conversation_id"])
  }
  const conversation = await send(0)
  for (let at = 1; at < MESSAGES; at++) await send(at)
  const message = { messageId: "unread", role: "ROLE_USER", parts: [{ text: TEXT }] }
  const begun = await ask(node, one, "POST", `/a2a/${other.handle}/message:send?A2A-Version=1.0`, {
    message,
    configuration: { returnImmediately: true }
  })
  const { task } = begun.body as { readonly task?: { readonly id: string } }
  if (task === undefined)
    throw new Error(`a task for the unread answers was answered with ${begun.status}: ${JSON.stringify(begun.body)}`)
  return { ...one, conversation, called: other.handle, task: task.id }
}

export const unreadAnswers = (): Fault => {
  const readers: Array<Reader> = []
  return {
    name: "unread-answers",
    about: "2,000 connections ask for histories, streams, sockets and pages, and read no answer",
    settings: { NODE_OPTIONS: `--max-old-space-size=${HEAP_MB}` },
    rate: 200,
    failsNoSend: true,
    keepsSpeed: true,
    prepare: async (site) => {
      const agents = await site.agents(2 * PAIRS)
      const pairs = Array.from({ length: PAIRS }, (_, i) => [agents[2 * i]!, agents[2 * i + 1]!] as const)
      await each(
        pairs,
        async ([one, other], i) => readers.push(await talk(site.node(i % site.nodes.length), one, other))
      )
    },
    inject: () => {},
    during: async (scene) => {
      const { problem, say, site } = scene
      const watched = site.nodes.map((node) => ({
        node,
        held: 0,
        crowd: new Crowd({
          to: node.address,
          from: site.strangers,
          size: Math.ceil(CONNECTIONS / site.nodes.length),
          ask: (n) => asks[n % asks.length]!(readers[Math.floor(n / asks.length) % readers.length]!),
          staysMs: STAYS_MS
        })
      }))
      const looking = again(scene, 500, () =>
        Promise.all(watched.map(async (one) => {
          one.held = Math.max(one.held, await metricOf(one.node, "held_bytes"))
        })))
      await again(scene, EVERY_MS, () => {
        for (const { crowd } of watched) crowd.topUp(AT_ONCE)
      })
      await looking
      for (const { crowd, held, node } of watched) {
        const memory = memoryOf(node, "most")
        say(
          `${node.name}: ${crowd.most} connections at once, ${crowd.opened} in all; ${
            (held / 1e6).toFixed(0)
          } MB held for them, ${(memory / 1e6).toFixed(0)} MB of memory at most`
        )
        if (memory > MEMORY_BOUND)
          problem(
            `${node.name} took ${(memory / 1e6).toFixed(0)} MB of memory; at most ${MEMORY_BOUND / 1e6} are allowed`
          )
        if (held < LEAST_HELD)
          problem(`${node.name} held no more than ${(held / 1e6).toFixed(0)} MB for answers that nobody reads`)
        crowd.close()
      }
    },
    heal: () => {
      readers.length = 0
    }
  }
}
