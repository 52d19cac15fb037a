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
import { LISTED, MuteKindSchema, SelfMute, type StoredMute, TooManyMutes } from "./Mute.ts"
import { MutesRepo } from "./MutesRepo.ts"

const BATCH_SIZE = 1_000

const Position = Schema.Struct({ createdAt: Schema.Int, kind: MuteKindSchema, targetId: CursorId })

/** The target of a mute, as given by the caller. */
export type MuteTarget =
  | { readonly kind: "agent"; readonly handle: string }
  | { readonly kind: "agent"; readonly id: string }
  | { readonly kind: "conversation"; readonly id: string }

/**
 * Mutes agents and conversations, so that their messages are not pushed (wire.md G.11). A mute is a row. Its end is
 * compared with the clock. The mutes of an agent with sockets are also in memory (LiveAgent), and a change is in that
 * memory before the call returns. A muted message is stored, listed by sync and counted as unread like any other
 * message. The cursors of open sockets move past it. So these sockets do not show it later, even after the mute has
 * ended. It is in the backlog of the next socket.
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
  /**
   * Removes the mutes that an agent has set, and the mutes of which it is the target (wire.md G.12). Open sockets apply
   * the change. Idempotent.
   */
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

      /** Returns the id of the target in a path, or undefined for an unknown handle. */
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
            ...LISTED,
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
