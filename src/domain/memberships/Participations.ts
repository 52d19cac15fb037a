import { Database } from "#infrastructure/database/Sql"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Context, Effect, Layer } from "effect"

/**
 * An agent's participation in a conversation. `counterpartyId` is the other agent of a direct conversation, and null in
 * a group.
 */
export interface Participation {
  readonly conversationId: string
  readonly counterpartyId: string | null
  readonly hiddenThrough: number
}

const PARTICIPATION = `
SELECT conversation_id, counterparty_id, hidden_through FROM participants WHERE agent_id = $1 AND conversation_id = $2`

const PARTICIPATIONS = `
SELECT conversation_id, counterparty_id, hidden_through FROM participants
WHERE agent_id = $1 AND conversation_id = ANY ($2::text[])`

interface ParticipationColumns {
  readonly conversation_id: string
  readonly counterparty_id: string | null
  readonly hidden_through: number
}

const toParticipation = (row: ParticipationColumns): Participation => ({
  conversationId: row.conversation_id,
  counterpartyId: row.counterparty_id,
  hiddenThrough: row.hidden_through
})

/** Reads which agents take part in which direct conversations and groups. Caches nothing. */
export class Participations extends Context.Service<Participations, {
  /** Returns undefined if the agent does not take part in the conversation. */
  readonly of: (agentId: string, conversationId: string) => Effect.Effect<Participation | undefined, Unavailable>
  /**
   * Returns the agent's participations in these conversations. Leaves out conversations in which the agent does not
   * take part.
   */
  readonly among: (
    agentId: string,
    conversationIds: ReadonlyArray<string>
  ) => Effect.Effect<ReadonlyArray<Participation>, Unavailable>
}>()("parley/memberships/Participations") {
  static readonly layer = Layer.effect(
    Participations,
    Effect.gen(function*() {
      const database = yield* Database
      const one = database.prepared<ParticipationColumns>("participation", PARTICIPATION)
      const among = database.prepared<ParticipationColumns>("participations", PARTICIPATIONS)
      return Participations.of({
        of: (agentId, conversationId) =>
          Effect.map(one([agentId, conversationId]), ([row]) => row === undefined ? undefined : toParticipation(row)),
        among: (agentId, conversationIds) =>
          Effect.map(among([agentId, conversationIds]), (rows) => rows.map(toParticipation))
      })
    })
  )
}
