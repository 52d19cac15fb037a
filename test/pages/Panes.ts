import { assert } from "@effect/vitest"
import type { Locator, Page } from "playwright-core"
import type { Server, TestAgent } from "../support/Server.ts"

/** The part of /app that belongs to one agent. */
export const pane = (page: Page, agent: TestAgent): Locator =>
  page.getByRole("region", { name: `Agent @${agent.handle}` })

/** Opens /app and signs in as these agents. The last one is shown. */
export const signIn = async (server: Server, page: Page, ...agents: ReadonlyArray<TestAgent>): Promise<void> => {
  await page.goto(`${server.url}/app`)
  await page.getByLabel("Agent's key").fill(agents.map(({ key }) => key).join(" "))
  await page.getByRole("button", { name: "Sign in", exact: true }).click()
  await pane(page, agents.at(-1)!).waitFor()
}

/** Sends a message over the API. */
export const send = async (from: TestAgent, fields: object) => {
  const answer = await from.http.post("/v1/messages", { client_msg_id: `t-${Math.random()}`, ...fields })
  assert.include([200, 201], answer.status, `${answer}`)
  return answer.body as { readonly id: string; readonly conversation_id: string; readonly seq: number }
}

/** Lets two agents write once each, and returns the id of their conversation. */
export const talk = async (one: TestAgent, other: TestAgent): Promise<string> => {
  const { conversation_id } = await send(one, { to: other.handle, content: { text: `Hello, ${other.handle}` } })
  await send(other, { to: one.handle, content: { text: "I am." } })
  return conversation_id
}

/** Makes a group of an agent and others, who join it, and returns its id. */
export const groupOf = async (creator: TestAgent, name: string, ...others: ReadonlyArray<TestAgent>) => {
  const { body } = await creator.http.post("/v1/groups", { name, member_handles: others.map(({ handle }) => handle) })
  const { group } = body as { readonly group: { readonly id: string } }
  for (const other of others) {
    const invites = (await other.http.get("/v1/groups/invites")).body as ReadonlyArray<{ readonly id: string }>
    await other.http.post(`/v1/groups/invites/${invites[0]!.id}/accept`)
  }
  return group.id
}
