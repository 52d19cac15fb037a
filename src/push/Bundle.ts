import { Schema } from "effect"

const CloseReasonSchema = Schema.Struct({ code: Schema.Literals([1001, 1008, 1009, 1011, 1013]), text: Schema.String })

/** A change of one agent that is applied on every node; nodes in reach have applied it when the caller goes on. */
export const Notice = Schema.Union([
  /** Its account has changed: caches drop it. */
  Schema.TaggedStruct("Changed", { agentId: Schema.String }),
  /** The same, and its sockets are closed. */
  Schema.TaggedStruct("Disconnect", { agentId: Schema.String, reason: CloseReasonSchema }),
  /** One of its mutes was changed in storage. */
  Schema.TaggedStruct("MuteChanged", {
    agentId: Schema.String,
    kind: Schema.Literals(["agent", "conversation"]),
    targetId: Schema.String
  }),
  /** All mutes on this agent were deleted: it has ended. */
  Schema.TaggedStruct("Unmuted", { agentId: Schema.String })
])
export type Notice = typeof Notice.Type

const Index = Schema.Int
const About = Schema.Struct({ senderId: Schema.String, conversationId: Schema.String })

/**
 * A push on its way to a node. `rendered` and `frame` are indexes into the bundle's lists, as many pushes
 * share them.
 */
export const PushOnWay = Schema.Union([
  Schema.TaggedStruct("Hint", {
    to: Schema.String,
    /** The `inboxNo` of the hint. */
    no: Schema.Int,
    messageId: Schema.String,
    senderId: Schema.String,
    rendered: Index,
    /** The trace of its send, if that is sampled. */
    trace: Schema.optional(Schema.String)
  }),
  Schema.TaggedStruct("Echo", {
    to: Schema.String,
    after: Schema.Int,
    before: Schema.NullOr(Schema.Int),
    messageId: Schema.String,
    rendered: Index
  }),
  Schema.TaggedStruct("Event", {
    to: Schema.String,
    frame: Index,
    about: Schema.optionalKey(About),
    after: Schema.optionalKey(Schema.Int)
  })
])

/** The body of one call to another node: what has gathered for it since the last call. `readBundle` reads it. */
export const Bundle = Schema.Struct({
  /**
   * When each socket that an agent has on the sender was let in, in milliseconds; none once the last one
   * is gone.
   */
  sockets: Schema.Array(Schema.Tuple([Schema.String, Schema.Array(Schema.Int)])),
  /** The number of the sender's last question, which asks for the receiver's sockets; 0 before the first. */
  asks: Schema.Int,
  /** The receiver's last question that had arrived when this was made: the announcements up to here answer it. */
  answers: Schema.Int,
  rendered: Schema.Array(Schema.Struct({ conversationId: Schema.String, seq: Schema.Int, before: Schema.String, after: Schema.String })),
  frames: Schema.Array(Schema.String),
  pushes: Schema.Array(PushOnWay),
  notices: Schema.Array(Notice),
  /** When the oldest of its messages was committed, in milliseconds of the database's clock; for a metric. */
  since: Schema.optionalKey(Schema.Int),
  /** Earlier pushes are lost; in the first bundle after a silence, notices too. */
  missed: Schema.Boolean
})

export const encodeBundle = (bundle: typeof Bundle.Type): string => JSON.stringify(bundle)
