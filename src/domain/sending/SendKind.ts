import type { Draft, MessageSender, ShownContext } from "#domain/messages/Message"
import type { Published } from "#domain/messages/Published"
import type { Unavailable } from "#infrastructure/wire/WireError"
import type { Effect } from "effect"
import type { Sent } from "./Sent.ts"

/** The types in which the sends of direct conversations and of groups differ. */
export interface SendTypes {
  readonly command: { readonly sender: typeof MessageSender.Type; readonly draft: Draft }
  /** The cached state on which sends are decided. */
  readonly state: unknown
  /** One item of the batch statement. */
  readonly write: { readonly messageId: string; readonly at: number }
  /** The result of the batch statement for one item. */
  readonly outcome: unknown
  readonly failure: unknown
  /** `null` if the callers of a send look up replays themselves, otherwise `never`. */
  readonly replay: null
}

/** The decision on a send, which the queue executes. */
export type Decision<Failure> =
  /** Write the message. If `alone`, later commands wait for the result. */
  | { readonly _tag: "Append"; readonly alone: boolean }
  /** Run `SendKind.open` first, because the send is the first message of its conversation. */
  | { readonly _tag: "Open" }
  /** Refuse the send if `SendKind.confirm` confirms the refusal. If `forget`, the next send reads the state again. */
  | { readonly _tag: "Refuse"; readonly failure: Failure; readonly forget: boolean }

/** The queue's next step after a write has ended. `state` becomes the cached state. */
export type Settlement<State, Failure> =
  | Stored & { readonly _tag: "Stored"; readonly state: State | undefined }
  /** Decide the send again. If `state` is undefined, the queue reads the state first. */
  | { readonly _tag: "Retry"; readonly state: State | undefined }
  /** The sender has used the client_msg_id before. */
  | { readonly _tag: "Replay" }
  | { readonly _tag: "Refuse"; readonly failure: Failure }
  /** Refuse the send because its sender has been suspended or deleted. */
  | { readonly _tag: "RefuseSender" }

/** The result of a look-up in storage, for a send that the cached state refuses or that opens a conversation. */
export type Verdict<Failure> =
  | { readonly _tag: "Refuse"; readonly failure: Failure }
  | { readonly _tag: "Replay" }
  /** The cached state is outdated: read the state and decide again. */
  | { readonly _tag: "Reload" }

export const REPLAY = { _tag: "Replay" } as const
export const RELOAD = { _tag: "Reload" } as const

/** The result of a write that stored its message. */
export interface Stored extends Pick<Published, "envelopes" | "senderLastInboxNo" | "senderNextInboxNo"> {
  readonly seq: number
  /** The group that is shown with the message; `null` for a direct message. */
  readonly group: ShownContext["group"]
  /** As in `ShownContext`. */
  readonly mentions?: ReadonlyArray<string>
  /** As in `Sent`. */
  readonly backlog: number | null
}

/** The fields of a write that the queue supplies. */
export interface Stamp {
  readonly messageId: string
  /** The time of the message, in milliseconds. */
  readonly at: number
  /** The id and the trace of the request that caused the send (`joinOrigin`), for webhooks. */
  readonly requestId: string | null
}

/** The send that `SendKind.open` and `SendKind.confirm` check. */
export interface Checked<K extends SendTypes> {
  readonly conversationId: string
  readonly command: K["command"]
  /** How many decisions on this send turned out to be outdated. */
  readonly attempts: number
}

/** A first message. */
export interface Opening<K extends SendTypes> extends Checked<K> {
  /** Whether all callers have timed out or disconnected. */
  readonly isAbandoned: () => boolean
  /** Checks the attachment, if the message has one. */
  readonly attach: Effect.Effect<void, K["failure"] | Unavailable>
}

/**
 * The rules and look-ups by which a queue sends to one kind of conversation, direct or group. `decide`, `write` and
 * `settle` are pure. The effects read storage. Only the queue changes the state in memory.
 */
export interface SendKind<K extends SendTypes> {
  /** How often a send may be decided. */
  readonly maxAttempts: number
  /** Reads the state. */
  readonly load: (conversationId: string, command: K["command"]) => Effect.Effect<K["state"], Unavailable>
  readonly decide: (state: K["state"], command: K["command"]) => Decision<K["failure"]>
  /** Makes the write of a send that `decide` or `open` allows. */
  readonly write: (conversationId: string, state: K["state"], command: K["command"], stamp: Stamp) => K["write"]
  /**
   * Decides what to do after the result of a write. `current` is the cached state when the result arrives. `decidedOn`
   * is the state on which the write was decided.
   */
  readonly settle: (
    current: K["state"] | undefined,
    write: K["write"],
    outcome: K["outcome"],
    decidedOn: K["state"],
    command: K["command"]
  ) => Settlement<K["state"], K["failure"]>
  /**
   * Takes a slot in the conversation's own rate window, and returns the function that releases the slot. Undefined if
   * this kind of conversation has no rate limit.
   */
  readonly admit: ((conversationId: string) => (() => void) | { readonly failure: K["failure"] }) | undefined
  /** Checks and reserves what a first message needs. Undefined if `decide` never returns `Open`. */
  readonly open:
    | ((
      opening: Opening<K>
    ) => Effect.Effect<Verdict<K["failure"]> | { readonly _tag: "Append" }, K["failure"] | Unavailable>)
    | undefined
  /**
   * Releases what `open` reserved for a write that was not stored. Returns undefined if `open` reserved nothing for the
   * write.
   */
  readonly release: (write: K["write"]) => Effect.Effect<void> | undefined
  /** Checks a refusal against storage, because another owner may have changed the rows. */
  readonly confirm: (
    refused: Checked<K>,
    failure: K["failure"],
    state: K["state"] | undefined
  ) => Effect.Effect<Verdict<K["failure"]>, K["failure"] | Unavailable>
  /** Returns the sender's earlier message, or undefined if there is none. */
  readonly original: (command: K["command"]) => Effect.Effect<Sent | K["replay"] | undefined, Unavailable>
  /** Whether the account of a sender that may not write is deleted. The account is suspended otherwise. */
  readonly isSenderDeleted: (conversationId: string, command: K["command"]) => Effect.Effect<boolean, Unavailable>
  /**
   * Checks that the attachment may be sent. The first use of a file sends a request to the file store: `asks` is called
   * with true before the request and with false after it.
   */
  readonly useAttachment: (
    conversationId: string,
    command: K["command"],
    attachmentId: string,
    asks: (isAsked: boolean) => void
  ) => Effect.Effect<void, K["failure"] | Unavailable>
}
