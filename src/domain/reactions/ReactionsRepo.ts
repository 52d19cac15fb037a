import { blockedBetween, intoOutbox, mayHook, unmuted } from "#domain/messages/Outbox"
import { MAX_DIFFERENT, MAX_OF_AGENT, type Reaction } from "#domain/messages/Reaction"
import { Database } from "#infrastructure/database/Sql"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Context, Effect, Layer } from "effect"

/** SQL for the JSON text with the reactions to the message `m` as this agent sees them, or NULL if there are none. */
export const reactionsOf = (agent: string): string =>
  `(
  SELECT json_agg(json_build_object('emoji', emoji, 'count', n, 'mine', mine) ORDER BY first, emoji)::text
  FROM (
    SELECT emoji, count(*) AS n, bool_or(agent_id = ${agent}) AS mine, min(created_at) AS first
    FROM reactions WHERE conversation_id = m.conversation_id AND seq = m.seq GROUP BY emoji
  ) of_message
)`

/** SQL condition: whether the agent has not hidden this message. The planner would turn an EXISTS into a join of all hides. */
const unhidden = (agent: string, conversation: string, seq: string): string =>
  `(
  SELECT true FROM hidden_messages h WHERE h.agent_id = ${agent} AND h.conversation_id = ${conversation} AND h.seq = ${seq}
) IS NULL`

/**
 * The message `$1` if its history shows it to the agent `$2`. The lock keeps other reactions to the message waiting, so that its
 * limits are exact.
 */
const FIND = `
SELECT m.conversation_id AS "conversationId", m.seq,
  m.type <> 'system' AND m.content <> '{}' AS "takesReactions",
  ${blockedBetween("$2", "p.counterparty_id", "m.conversation_id")} AS blocked
FROM messages m JOIN participants p ON p.agent_id = $2 AND p.conversation_id = m.conversation_id
WHERE m.id = $1 AND m.seq > p.hidden_through
  AND ${unhidden("$2", "m.conversation_id", "m.seq")}
FOR NO KEY UPDATE OF m`

/**
 * The participants who see the message, if `changed` has a row. With `$6`, across a block, this is only the agent `$3`
 * that reacts. `hooked` are those whose webhooks get the event: not the agent `$3`, and not the agents that mute `$3` or
 * the conversation.
 */
const told = (isAdded: boolean): string => `
told AS MATERIALIZED (
  SELECT p.agent_id FROM changed
  JOIN LATERAL (
    SELECT agent_id, hidden_through FROM participants WHERE conversation_id = $1 OFFSET 0
  ) p ON $2 > p.hidden_through AND (NOT $6::boolean OR p.agent_id = $3)
  WHERE ${unhidden("p.agent_id", "$1", "$2")}
), hooked AS MATERIALIZED (
  SELECT t.agent_id FROM told t
  JOIN LATERAL (SELECT * FROM agents WHERE id = t.agent_id OFFSET 0) a ON ${mayHook("a", "message.reaction")}
  WHERE t.agent_id <> $3 AND ${unmuted("t.agent_id", "$3", "$1", "$5")}
), posted AS (${
  intoOutbox(
    "message.reaction",
    `SELECT agent_id, $5::bigint AS at, $8::text AS request, json_build_object(
      'message_id', $7::text, 'conversation_id', $1::text, 'by', $3::text, 'emoji', $4::text, 'added', ${isAdded}
    )::text AS subject FROM hooked`
  )
})`

const ADD = `
WITH there AS MATERIALIZED (
  SELECT agent_id, emoji FROM reactions WHERE conversation_id = $1 AND seq = $2
), changed AS (
  INSERT INTO reactions (conversation_id, seq, agent_id, emoji, created_at)
  SELECT $1::text, $2::bigint, $3::text, $4::text, $5::bigint
  WHERE NOT EXISTS (SELECT FROM there WHERE agent_id = $3 AND emoji = $4)
    AND (SELECT count(*) FROM there WHERE agent_id = $3) < ${MAX_OF_AGENT}
    AND ($4 IN (SELECT emoji FROM there) OR (SELECT count(DISTINCT emoji) FROM there) < ${MAX_DIFFERENT})
  RETURNING emoji
), ${told(true)}
SELECT EXISTS (SELECT FROM changed) AS changed, ARRAY(SELECT agent_id FROM told) AS told,
  ARRAY(SELECT agent_id FROM hooked) AS hooked,
  EXISTS (SELECT FROM there WHERE agent_id = $3 AND emoji = $4) AS known`

const REMOVE = `
WITH changed AS (
  DELETE FROM reactions WHERE conversation_id = $1 AND seq = $2 AND agent_id = $3 AND emoji = $4
  RETURNING emoji
), ${told(false)}
SELECT EXISTS (SELECT FROM changed) AS changed, ARRAY(SELECT agent_id FROM told) AS told,
  ARRAY(SELECT agent_id FROM hooked) AS hooked, false AS known`

const LIST = `SELECT ${reactionsOf("$3")} AS reactions FROM (SELECT $1::text AS conversation_id, $2::bigint AS seq) m`

/** A message that an agent may react to. */
export interface FoundMessage {
  readonly conversationId: string
  readonly seq: number
  /** False for messages of the system and for removed messages. */
  readonly takesReactions: boolean
  /** Whether one of the two agents of a direct conversation blocks the other. */
  readonly blocked: boolean
}

export interface ReactionChange {
  readonly agentId: string
  readonly messageId: string
  readonly emoji: string
  /** The time in milliseconds. */
  readonly at: number
  /** The id of the request. */
  readonly request: string | null
}

export interface ReactionChanged {
  /** Whether the change changed anything. */
  readonly changed: boolean
  /** Whether the reaction was there before. */
  readonly known: boolean
  /** The agents whose sockets get the event. */
  readonly told: ReadonlyArray<string>
  /** The agents whose webhooks get the event. */
  readonly hooked: ReadonlyArray<string>
}

/** The SQL for reactions to messages. Run `find` and a change of the message in one transaction. */
export class ReactionsRepo extends Context.Service<ReactionsRepo, {
  /** Returns undefined if the agent does not see the message. Locks the message. */
  readonly find: (messageId: string, agentId: string) => Effect.Effect<FoundMessage | undefined, Unavailable>
  readonly add: (message: FoundMessage, change: ReactionChange) => Effect.Effect<ReactionChanged, Unavailable>
  readonly remove: (message: FoundMessage, change: ReactionChange) => Effect.Effect<ReactionChanged, Unavailable>
  /** The reactions to a message, in the order of the first of each. */
  readonly list: (
    message: FoundMessage,
    agentId: string
  ) => Effect.Effect<ReadonlyArray<typeof Reaction.Type>, Unavailable>
}>()("parley/reactions/ReactionsRepo") {
  static readonly layer = Layer.effect(
    ReactionsRepo,
    Effect.gen(function*() {
      const { prepared } = yield* Database
      const find = prepared<FoundMessage>("find_for_reaction", FIND)
      const add = prepared<ReactionChanged>("add_reaction", ADD)
      const remove = prepared<ReactionChanged>("remove_reaction", REMOVE)
      const list = prepared<{ readonly reactions: string | null }>("list_reactions", LIST)
      const running = (run: typeof add) => (message: FoundMessage, change: ReactionChange) =>
        Effect.map(
          run([
            message.conversationId,
            message.seq,
            change.agentId,
            change.emoji,
            change.at,
            message.blocked,
            change.messageId,
            change.request
          ]),
          ([row]) => row!
        )
      return ReactionsRepo.of({
        find: (messageId, agentId) => Effect.map(find([messageId, agentId]), ([row]) => row),
        add: running(add),
        remove: running(remove),
        list: ({ conversationId, seq }, agentId) =>
          Effect.map(
            list([conversationId, seq, agentId]),
            ([row]) => JSON.parse(row?.reactions ?? "[]") as ReadonlyArray<typeof Reaction.Type>
          )
      })
    })
  )
}
