import { join, resolve } from "node:path"
import { form, get, type Got } from "../../test/signin/Flow.ts"
import { eventually } from "../../test/support/Eventually.ts"
import type { RegisteredAgent } from "../../test/support/RegisterAgents.ts"
import { run } from "../hosts/Install.ts"
import type { Tokens } from "./Home.ts"

const ROOT = resolve(import.meta.dirname, "../..")
/** How long two processes have to start before they refresh at once. */
const START_MS = 3_000
/**
 * How long after the first use of its successor a refresh token still gives the same pair (wire.md P), and a second
 * more.
 */
export const REPEAT_MS = 61_000

/** The tokens of a connection, and the client that has them. */
export interface Connection extends Tokens {
  readonly clientId: string
}

/** The status with which a node answers a call of a tool with an access token. */
export const statusAt = async (node: string, access: string): Promise<number> => {
  const response = await fetch(`${node}/mcp`, {
    method: "POST",
    headers: {
      authorization: `Bearer ${access}`,
      "content-type": "application/json",
      accept: "application/json, text/event-stream"
    },
    body: JSON.stringify({
      jsonrpc: "2.0",
      id: 1,
      method: "tools/call",
      params: { name: "agentchat_get_my_status", arguments: {} }
    })
  })
  await response.body?.cancel()
  return response.status
}

export const refresh = (node: string, { clientId, refresh }: Connection): Promise<Got> =>
  form(`${node}/token`, { grant_type: "refresh_token", client_id: clientId, refresh_token: refresh })

/** The connections of an agent, as the agent sees them. */
export const connectionsOf = async (
  node: string,
  { key }: RegisteredAgent
): Promise<ReadonlyArray<Readonly<Record<string, unknown>>>> => {
  const { body } = await get(`${node}/v1/connections`, { authorization: `Bearer ${key}` })
  return body.connections
}

interface Answer {
  readonly status: number
  readonly body: { readonly access_token?: string; readonly refresh_token?: string; readonly error?: string }
}

/**
 * Two processes refresh the same pair at once, each at another node. Returns the next pair, which both have to get, and
 * which both nodes have to accept; or the problem.
 */
export const refreshTwice = async (
  nodes: ReadonlyArray<string>,
  connection: Connection
): Promise<Connection | string> => {
  const at = String(Date.now() + START_MS)
  const answers = await Promise.all(nodes.map(async (node) => {
    const args = [
      "--import",
      "./runners/require-node.js",
      join(import.meta.dirname, "Refresh.ts"),
      node,
      connection.clientId,
      connection.refresh,
      at
    ]
    const { code, output } = await run(process.execPath, args, { cwd: ROOT, env: process.env, limitMs: 60_000 })
    return code === 0 ? JSON.parse(output.trim().split("\n").at(-1) ?? "") as Answer : output
  }))
  const [first] = answers
  const same = answers.every((one) => JSON.stringify(one) === JSON.stringify(first))
  const { access_token: access, refresh_token: next } = typeof first === "object" ? first.body : {}
  if (!same || access === undefined || next === undefined)
    return answers.map((one) => JSON.stringify(one)).join(" and ").replaceAll(/o[ar]t_[\w-]+/g, "…")
  const statuses = await Promise.all(nodes.map((node) => statusAt(node, access)))
  return statuses.every((status) => status === 200)
    ? { clientId: connection.clientId, access, refresh: next }
    : `the nodes answer ${statuses.join(" and ")}`
}

/**
 * What is left of a connection that has ended: a node that still accepts its access token after 5 s, or that refreshes
 * its tokens.
 */
export const leftOf = async (nodes: ReadonlyArray<string>, connection: Connection): Promise<string> => {
  for (const [at, node] of nodes.entries()) {
    const refused = await eventually(
      "401",
      async () => await statusAt(node, connection.access) === 401 || undefined,
      5_000
    ).catch(() => false)
    if (!refused) return `node ${at + 1} accepts the access token`
    const { body, status } = await refresh(node, connection)
    if (status !== 400 || body?.error !== "invalid_grant")
      return `node ${at + 1} answers the refresh token with ${status}`
  }
  return ""
}
