import { type Agent, AgentNotFound, displayNameOf } from "#domain/agents/Agent"
import { Agents } from "#domain/agents/Agents"
import { Conversations } from "#domain/conversations/Conversations"
import { Enforcement } from "#domain/enforcement/Enforcement"
import { IdempotentIds } from "#domain/idempotency/IdempotentIds"
import { WebhookSignals } from "#domain/messages/WebhookSignals"
import { type Page, pageOf, type PageQuery, TimePosition } from "#infrastructure/wire/Page"
import { iso } from "#infrastructure/wire/Text"
import { NotFound, Unavailable, ValidationFailed } from "#infrastructure/wire/WireError"
import { Clock, Context, Effect, Layer, Schema } from "effect"
import { AlreadyReported, type BlockedAgent, type Contact, type ContactCheck, LISTED } from "./Contact.ts"
import { ContactsRepo, type StoredContact } from "./ContactsRepo.ts"

/** How many of an agent's own contacts, and of the entries for it in other lists, one statement removes. */
const BATCH_SIZE = 500

const ContactPosition = Schema.Struct({ handle: Schema.String.check(Schema.isPattern(/^[a-z0-9-]+$/)) })

/**
 * Manages an agent's contacts, blocks and reports (wire.md C.5, G.9). Handles are normalised. An unknown or deleted
 * handle is refused, except by `check`. Every call can be retried.
 */
export class Contacts extends Context.Service<Contacts, {
  /** Adds a contact. If it exists already, it is not changed. */
  readonly add: (
    agentId: string,
    handle: string,
    notes: string | null
  ) => Effect.Effect<
    { readonly created: boolean; readonly contact: typeof Contact.Type },
    AgentNotFound | ValidationFailed | Unavailable
  >
  readonly list: (
    agentId: string,
    query: PageQuery
  ) => Effect.Effect<Page<typeof Contact.Type>, ValidationFailed | Unavailable>
  readonly check: (agentId: string, handle: string) => Effect.Effect<typeof ContactCheck.Type, Unavailable>
  readonly annotate: (
    agentId: string,
    handle: string,
    notes: string | null
  ) => Effect.Effect<void, AgentNotFound | NotFound | Unavailable>
  readonly remove: (agentId: string, handle: string) => Effect.Effect<void, AgentNotFound | NotFound | Unavailable>
  /**
   * Blocks an agent. When this completes, no message between the two is accepted any more. Contacts and history are
   * kept.
   */
  readonly block: (
    agentId: string,
    handle: string
  ) => Effect.Effect<void, AgentNotFound | ValidationFailed | Unavailable>
  readonly unblock: (agentId: string, handle: string) => Effect.Effect<void, AgentNotFound | NotFound | Unavailable>
  /** Reports and blocks an agent in one commit. */
  readonly report: (
    agentId: string,
    handle: string,
    reason: string | null
  ) => Effect.Effect<void, AgentNotFound | AlreadyReported | ValidationFailed | Unavailable>
  readonly blocks: (
    agentId: string,
    query: PageQuery
  ) => Effect.Effect<Page<typeof BlockedAgent.Type>, ValidationFailed | Unavailable>
  /**
   * Removes a deleted agent's own contacts, and the agent from all contact lists (wire.md G.12). Idempotent. Blocks and
   * reports are kept.
   */
  readonly removeAgent: (agentId: string) => Effect.Effect<void, Unavailable>
}>()("parley/contacts/Contacts") {
  static readonly layer = Layer.effect(
    Contacts,
    Effect.gen(function*() {
      const repo = yield* ContactsRepo
      const agents = yield* Agents
      const conversations = yield* Conversations
      const enforcement = yield* Enforcement
      const signals = yield* WebhookSignals
      const ids = yield* IdempotentIds

      const known = (handle: string): Effect.Effect<Agent, AgentNotFound | Unavailable> =>
        Effect.flatMap(
          agents.byHandle(handle),
          (agent) => agent === undefined ? Effect.fail(new AgentNotFound()) : Effect.succeed(agent)
        )

      const another = (
        agentId: string,
        handle: string
      ): Effect.Effect<Agent, AgentNotFound | ValidationFailed | Unavailable> =>
        Effect.flatMap(
          known(handle),
          (agent) =>
            agent.id === agentId ? Effect.fail(ValidationFailed.field("handle", "is yourself")) : Effect.succeed(agent)
        )

      const present = (agent: Agent, stored: StoredContact): typeof Contact.Type => ({
        handle: agent.handle,
        display_name: displayNameOf(agent),
        description: agent.description,
        avatar_url: agents.avatarUrl(agent),
        status: agent.status,
        notes: stored.notes,
        added_at: iso(stored.addedAt)
      })

      /**
       * Looks up agents that are not deleted. The resulting function returns, for an id, a list that contains the agent
       * or is empty.
       */
      const liveById = Effect.fnUntraced(function*(wanted: ReadonlyArray<string>) {
        const found = yield* agents.byIds(wanted)
        return (id: string): ReadonlyArray<Agent> => {
          const agent = found.get(id)
          return agent === undefined || agent.deletedAt !== null ? [] : [agent]
        }
      })

      const orNotContact = (found: boolean): Effect.Effect<void, NotFound> =>
        found ? Effect.void : Effect.fail(new NotFound({ message: "This agent is not among your contacts." }))

      return Contacts.of({
        add: Effect.fn("Contacts.add")(function*(agentId, handle, notes) {
          const agent = yield* another(agentId, handle)
          const now = yield* Clock.currentTimeMillis
          for (let tries = 0; tries < 5; tries++) {
            const stored = yield* repo.add(agentId, agent.id, notes === "" ? null : notes, now)
            if (stored !== undefined) return { created: stored.created, contact: present(agent, stored) }
          }
          return yield* new Unavailable()
        }),
        list: Effect.fn("Contacts.list")((agentId, query) =>
          pageOf(query, {
            ...LISTED,
            position: ContactPosition,
            rows: (range) => repo.list(agentId, range),
            total: repo.count(agentId),
            positionOf: ({ handle }) => ({ handle }),
            show: Effect.fnUntraced(function*(rows) {
              const live = yield* liveById(rows.map((row) => row.contactId))
              return rows.flatMap((row) => live(row.contactId).map((agent) => present(agent, row)))
            })
          })
        ),
        check: Effect.fn("Contacts.check")(function*(agentId, handle) {
          const agent = yield* agents.byHandle(handle)
          const stored = agent === undefined ? undefined : yield* repo.find(agentId, agent.id)
          return stored === undefined
            ? { handle, is_contact: false, added_at: null, notes: null }
            : { handle, is_contact: true, added_at: iso(stored.addedAt), notes: stored.notes }
        }),
        annotate: Effect.fn("Contacts.annotate")(function*(agentId, handle, notes) {
          const agent = yield* known(handle)
          yield* orNotContact(yield* repo.annotate(agentId, agent.id, notes === "" ? null : notes))
        }),
        remove: Effect.fn("Contacts.remove")(function*(agentId, handle) {
          const agent = yield* known(handle)
          yield* orNotContact(yield* repo.remove(agentId, agent.id))
        }),
        block: Effect.fn("Contacts.block")(function*(agentId, handle) {
          const agent = yield* another(agentId, handle)
          const outcome = yield* conversations.block({
            agentId,
            blockedId: agent.id,
            at: yield* Clock.currentTimeMillis,
            report: null
          })
          if (outcome === "Blocked") signals.raise(agent.id)
          yield* enforcement.recount(agent.id)
        }),
        unblock: Effect.fn("Contacts.unblock")(function*(agentId, handle) {
          const agent = yield* known(handle)
          const outcome = yield* conversations.unblock({ agentId, blockedId: agent.id })
          if (outcome === "NotBlocked") return yield* new NotFound({ message: "You have not blocked this agent." })
          yield* enforcement.recount(agent.id)
        }),
        report: Effect.fn("Contacts.report")(function*(agentId, handle, reason) {
          const agent = yield* another(agentId, handle)
          const id = yield* ids.make("rpt")
          const outcome = yield* conversations.block({
            agentId,
            blockedId: agent.id,
            at: yield* Clock.currentTimeMillis,
            report: { id, reason }
          })
          // An earlier attempt of this request may have stored the report, and its response was lost.
          if (outcome === "AlreadyReported" && !(yield* repo.isReport(agentId, agent.id, id))) {
            return yield* new AlreadyReported()
          }
          if (outcome === "Blocked") signals.raise(agent.id)
          yield* enforcement.recount(agent.id)
        }),
        blocks: Effect.fn("Contacts.blocks")((agentId, query) =>
          pageOf(query, {
            ...LISTED,
            position: TimePosition,
            rows: (range) => repo.blocks(agentId, range),
            total: repo.countBlocks(agentId),
            positionOf: ({ blockedId, createdAt }) => ({ createdAt, id: blockedId }),
            show: Effect.fnUntraced(function*(rows) {
              const live = yield* liveById(rows.map((row) => row.blockedId))
              return rows.flatMap((row) =>
                live(row.blockedId).map((agent) => ({
                  handle: agent.handle,
                  display_name: displayNameOf(agent),
                  avatar_url: agents.avatarUrl(agent),
                  blocked_at: iso(row.createdAt)
                }))
              )
            })
          })
        ),
        removeAgent: Effect.fn("Contacts.removeAgent")(function*(agentId) {
          while ((yield* repo.removeAgent(agentId, BATCH_SIZE)) > 0);
        })
      })
    })
  )
}
