import { registerAgents, type RegisteredAgent } from "../../test/support/RegisterAgents.ts"
import type { ServerProcess } from "../../test/support/ServerProcess.ts"
import type { Channel, LoadAgent } from "./Load.ts"

/** Who writes to whom. */
export type SceneKind = "ring" | "hot" | "group"

/** Agents that know each other, with nothing in their inboxes. */
export interface Scene {
  readonly agents: ReadonlyArray<LoadAgent>
  readonly channels: ReadonlyArray<Channel>
}

const call = async (
  server: ServerProcess,
  method: string,
  path: string,
  key: string,
  body?: unknown
): Promise<unknown> => {
  const response = await fetch(server.url + path, {
    method,
    headers: { authorization: `Bearer ${key}` },
    ...(body === undefined ? {} : { body: JSON.stringify(body) })
  })
  const text = await response.text()
  if (!response.ok) throw new Error(`${method} ${path} answered ${response.status}: ${text}`)
  return JSON.parse(text)
}

/** One agent writes and the other replies, so that both may write to the conversation from then on. */
const acquaint = async (server: ServerProcess, one: RegisteredAgent, other: RegisteredAgent, turn: number) => {
  const hello = (from: RegisteredAgent, to: RegisteredAgent) =>
    call(server, "POST", "/v1/messages", from.key, {
      to: to.handle,
      client_msg_id: `hello-${turn}`,
      content: { text: "Shall we talk?" }
    }) as Promise<{ readonly conversation_id: string; readonly seq: number }>
  await hello(one, other)
  const { conversation_id, seq } = await hello(other, one)
  return { conversationId: conversation_id, lastSeq: seq, target: { to: `@${other.handle}` } }
}

/** Each agent writes to the next. */
const ring = async (server: ServerProcess, agents: ReadonlyArray<RegisteredAgent>): Promise<ReadonlyArray<Channel>> => {
  const channels: Array<Channel> = []
  for (const [i, agent] of agents.entries()) {
    const next = (i + 1) % agents.length
    channels.push({ ...await acquaint(server, agent, agents[next]!, i), senders: [i], recipients: [next] })
  }
  return channels
}

/** One agent writes to one other, as fast as it can. */
const hot = async (
  server: ServerProcess,
  [one, other]: ReadonlyArray<RegisteredAgent>
): Promise<ReadonlyArray<Channel>> => [{ ...await acquaint(server, one!, other!, 0), senders: [0], recipients: [1] }]

/** All are in one group and write there in turn. */
const group = async (
  server: ServerProcess,
  agents: ReadonlyArray<RegisteredAgent>
): Promise<ReadonlyArray<Channel>> => {
  const [creator, ...others] = agents
  const { add_results, group: { id } } = await call(server, "POST", "/v1/groups", creator!.key, {
    name: "Everybody",
    member_handles: others.map(({ handle }) => handle)
  }) as {
    readonly group: { readonly id: string }
    readonly add_results: ReadonlyArray<{ readonly handle: string; readonly invite_id: string }>
  }
  const keys = new Map(others.map(({ handle, key }) => [handle, key]))
  for (const { handle, invite_id } of add_results) {
    await call(server, "POST", `/v1/groups/invites/${invite_id}/accept`, keys.get(handle.replace(/^@/, ""))!)
  }
  const { seq } = await call(server, "POST", "/v1/messages", creator!.key, {
    conversation_id: id,
    client_msg_id: "hello",
    content: { text: "Shall we talk?" }
  }) as { readonly seq: number }
  const everybody = agents.map((_, i) => i)
  return [{
    conversationId: id,
    lastSeq: seq,
    target: { conversation_id: id },
    senders: everybody,
    recipients: everybody
  }]
}

const emptyInbox = async (server: ServerProcess, { key }: RegisteredAgent): Promise<void> => {
  for (;;) {
    const rows = await call(server, "GET", "/v1/messages/sync", key) as Array<{ readonly delivery_id: string }>
    const last = rows.at(-1)
    if (last === undefined) return
    await call(server, "POST", "/v1/messages/sync/ack", key, { last_delivery_id: last.delivery_id })
  }
}

export const setScene = async (
  server: ServerProcess,
  outbox: string,
  kind: SceneKind,
  size: number
): Promise<Scene> => {
  const agents = await registerAgents(server.url, outbox, Array.from({ length: size }, (_, i) => `bench-${i}`))
  const channels = await { ring, hot, group }[kind](server, agents)
  for (const agent of agents) await emptyInbox(server, agent)
  return { agents, channels }
}

/** The names of what is measured beside servers of Parley. */
export const FLOOR = "floor: node:http and ws"
export const EJABBERD = "ejabberd"
