import { readdir, rm } from "node:fs/promises"
import { join } from "node:path"
import { Outbox } from "./Outbox.ts"

export interface RegisteredAgent {
  readonly handle: string
  readonly key: string
}

/** A POST without a key, which must succeed. */
const post = async (url: string, body: unknown): Promise<unknown> => {
  const response = await fetch(url, {
    method: "POST",
    body: JSON.stringify(body),
    headers: { "content-type": "application/json" }
  })
  const text = await response.text()
  if (!response.ok) throw new Error(`POST ${url} answered ${response.status}: ${text}`)
  return JSON.parse(text)
}

/**
 * Registers many agents through the API, with the codes from the outbox, `sideBySide` at a time. Returns them in the
 * order of `handles`. Empties the outbox as it goes: looking for a code among thousands of mails is slow.
 */
export const registerAgents = async (
  url: string,
  outboxFolder: string,
  handles: ReadonlyArray<string>,
  sideBySide = 16
): Promise<ReadonlyArray<RegisteredAgent>> => {
  const outbox = new Outbox(outboxFolder)
  const agents: Array<RegisteredAgent> = []
  for (let at = 0; at < handles.length; at += sideBySide) {
    const some = handles.slice(at, at + sideBySide).map(async (handle) => {
      const email = `${handle}@agents.example`
      const begun = await post(`${url}/v1/register`, { email, handle }) as { readonly pending_id: string }
      const code = await outbox.code(email)
      const done = await post(`${url}/v1/register/verify`, { pending_id: begun.pending_id, code })
      return { handle, key: (done as { readonly api_key: string }).api_key }
    })
    agents.push(...await Promise.all(some))
    for (const name of await readdir(outboxFolder)) await rm(join(outboxFolder, name), { force: true })
  }
  return agents
}
