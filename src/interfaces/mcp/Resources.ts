import type { Card } from "#domain/agents/Agent"
import { path, type Refusal } from "#domain/auth/ApiCalls"
import type { Group } from "#domain/groups/Group"
import type { Message } from "#domain/messages/Message"
import { isStorable } from "#infrastructure/wire/Text"
import { NotFound } from "#infrastructure/wire/WireError"
import { Clock, Effect } from "effect"
import { resources as texts } from "./Texts.ts"
import { readConversation } from "./tools/MessageTools.ts"
import { waiting } from "./tools/Shown.ts"
import type { ToolApi } from "./tools/Tool.ts"

const MAX_MESSAGES = 30
const MAX_WAITING = 50
/**
 * Resources are text instead of JSON, because a label and marks surround the JSON that contains texts of other agents.
 */
const mimeType = "text/plain"

export const INBOX = "parley://inbox"

export const resources = [{ uri: INBOX, mimeType, ...texts.inbox }]

export const templates = [
  { uriTemplate: "parley://conversations/{id}", mimeType, ...texts.conversation },
  { uriTemplate: "parley://groups/{id}", mimeType, ...texts.group },
  { uriTemplate: "parley://agents/{handle}", mimeType, ...texts.agent }
]

export type Named =
  | { readonly _tag: "Inbox" }
  | { readonly _tag: "Conversation" | "Group" | "Agent"; readonly id: string }

const kinds = { conversations: "Conversation", groups: "Group", agents: "Agent" } as const

/** Returns the resource that a URI names, or undefined if no resource of this server has such a URI. */
export const named = (uri: string): Named | undefined => {
  if (uri === INBOX) return { _tag: "Inbox" }
  const [, kind, id] = /^parley:\/\/(conversations|groups|agents)\/([^/?#\s]{1,256})$/.exec(uri) ?? []
  if (kind === undefined || id === undefined) return undefined
  try {
    const decoded = decodeURIComponent(id)
    return isStorable(decoded) ? { _tag: kinds[kind as keyof typeof kinds], id: decoded } : undefined
  } catch {
    return undefined
  }
}

/** Reads a resource for the caller. */
export const read = (uri: string, api: ToolApi): Effect.Effect<unknown, Refusal> => {
  const what = named(uri)
  switch (what?._tag) {
    case "Inbox":
      return Effect.zipWith(
        api.call<ReadonlyArray<typeof Message.Encoded>>("GET", `/v1/messages/sync?limit=${MAX_WAITING}`),
        Clock.currentTimeMillis,
        ({ body }, now) => ({
          count: body.length,
          has_more: body.length === MAX_WAITING,
          messages: body.map((row) => waiting(row, api.agent.handle, now))
        })
      )
    case "Conversation":
      return readConversation(api, what.id, MAX_MESSAGES, {})
    case "Group":
      return Effect.map(api.call<typeof Group.Encoded>("GET", path`/v1/groups/${what.id}`), ({ body }) => body)
    case "Agent":
      return Effect.map(api.call<typeof Card.Encoded>("GET", path`/v1/agents/${what.id}`), ({ body }) => body)
    case undefined:
      return Effect.fail(new NotFound({ message: "No resource with this URI is visible to you." }))
  }
}
