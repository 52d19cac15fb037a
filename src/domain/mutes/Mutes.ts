import { AgentNotFound } from "#domain/agents/Agent"
import { Agents } from "#domain/agents/Agents"
import type { ConversationNotFound } from "#domain/conversations/Conversation"
import { Conversations } from "#domain/conversations/Conversations"
import { LiveAgents } from "#domain/push/LiveAgents"
import type { MuteKind } from "#domain/push/MuteSet"
import { Config } from "#infrastructure/platform/Config"
import { CursorId, type Page, pageOf, type PageQuery } from "#infrastructure/wire/Page"
import { NotFound, type Unavailable, type ValidationFailed } from "#infrastructure/wire/WireError"
import { Clock, Context, Effect, Layer, Schema } from "effect"
import { MuteKindSchema, SelfMute, type StoredMute, TooManyMutes } from "./Mute.ts"
import { MutesRepo } from "./MutesRepo.ts"

const MAX_LIMIT = 200
const BATCH_SIZE = 1_000

const Position = Schema.Struct({ createdAt: Schema.Int, kind: MuteKindSchema, targetId: CursorId })

/** The target of a mute, as the caller names it. */
export type MuteTarget =
  | { readonly kind: "agent"; readonly handle: string }
  | { readonly kind: "agent"; readonly id: string }
  | { readonly kind: "conversation"; readonly id: string }

/**
 * Mutes agents and conversations, whose messages are then not pushed (wire.md G.11). A mute is a row, whose end is
 * compared with the clock. The mutes of an agent with sockets are also in memory (LiveAgent), and a change is in that
 * memory before the call returns. A muted message is stored, listed by sync and counted as unread like any other. The
 * sockets' cursors move past it. So the same socket does not push it later, even after the mute has ended. Sync lists
 * it, and it is in the backlog of the next socket.
 */
export class Mutes extends Context.Service<Mutes, {
  /** Mutes a target until a time in milliseconds, or for good (`null`). Muting again changes the end. */
  readonly mute: (
    muterId: string,
    target: MuteTarget,
    until: number | null
  ) => Effect.Effect<StoredMute, AgentNotFound | ConversationNotFound | SelfMute | TooManyMutes | Unavailable>
  readonly list: (
    muterId: string,
    kind: MuteKind | undefined,
    query: PageQuery
  ) => Effect.Effect<Page<StoredMute>, ValidationFailed | Unavailable>
  readonly find: (
    muterId: string,
    target: Exclude<MuteTarget, { readonly kind: "agent"; readonly id: string }>
  ) => Effect.Effect<StoredMute, NotFound | Unavailable>
  readonly lift: (
    muterId: string,
    target: Exclude<MuteTarget, { readonly kind: "agent"; readonly id: string }>
  ) => Effect.Effect<void, NotFound | Unavailable>
  /** Removes an agent's mutes and the mutes of it, for open sockets too (wire.md G.12). Idempotent. */
  readonly removeAgent: (agentId: string) => Effect.Effect<void, Unavailable>
}>()("parley/mutes/Mutes") {
  static readonly layer = Layer.effect(
    Mutes,
    Effect.gen(function*() {
      const liveAgents = yield* LiveAgents
      const agents = yield* Agents
      const clock = yield* Clock.Clock
      const config = yield* Config
      const conversations = yield* Conversations
      const repo = yield* MutesRepo
      const now = () => clock.currentTimeMillisUnsafe()

      const notMuted = () => new NotFound({ message: "You have not muted this agent or conversation." })

      /** The id of the target that a path names. Undefined for an unknown handle. */
      const idOf = (
        target: { readonly kind: "agent"; readonly handle: string } | {
          readonly kind: "conversation"
          readonly id: string
        }
      ) =>
        target.kind === "conversation"
          ? Effect.succeed(target.id)
          : Effect.map(agents.byHandle(target.handle), (agent) => agent?.id)

      return Mutes.of({
        mute: Effect.fn("Mutes.mute")(function*(muterId, target, until) {
          let targetId: string
          if (target.kind === "conversation") {
            yield* conversations.participation(muterId, target.id)
            targetId = target.id
          } else {
            const agent = "handle" in target
              ? yield* agents.byHandle(target.handle)
              : (yield* agents.byIds([target.id])).get(target.id)
            if (agent === undefined || agent.deletedAt !== null) return yield* new AgentNotFound()
            if (agent.id === muterId) return yield* new SelfMute()
            targetId = agent.id
          }
          const stored = yield* repo.put(
            { muterId, kind: target.kind, targetId, until },
            now(),
            config.LIMITS_MUTES_PER_AGENT
          )
          if (stored === undefined) return yield* new TooManyMutes()
          yield* liveAgents.muteChanged(muterId, target.kind, targetId)
          return stored
        }),
        list: Effect.fn("Mutes.list")((muterId, kind, query) => {
          const at = now()
          return pageOf(query, {
            usual: MAX_LIMIT,
            max: MAX_LIMIT,
            position: Position,
            rows: (range) => repo.list(muterId, kind ?? null, range, at),
            total: repo.count(muterId, kind ?? null, at),
            positionOf: ({ createdAt, kind, targetId }) => ({ createdAt, kind, targetId }),
            show: Effect.succeed
          })
        }),
        find: Effect.fn("Mutes.find")(function*(muterId, target) {
          const targetId = yield* idOf(target)
          const found = targetId === undefined
            ? undefined
            : yield* repo.one(muterId, target.kind, targetId, now())
          return found ?? (yield* notMuted())
        }),
        lift: Effect.fn("Mutes.lift")(function*(muterId, target) {
          const targetId = yield* idOf(target)
          if (targetId === undefined) return yield* notMuted()
          const lifted = yield* repo.remove(muterId, target.kind, targetId, now())
          if (!lifted) return yield* notMuted()
          yield* liveAgents.muteChanged(muterId, target.kind, targetId)
        }),
        removeAgent: Effect.fn("Mutes.removeAgent")(function*(agentId) {
          while ((yield* repo.removeAgent(agentId, BATCH_SIZE)) > 0);
          yield* liveAgents.unmuted(agentId)
        })
      })
    })
  )
}
