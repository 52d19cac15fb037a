import { MASKED } from "#domain/agents/Agent"
import { Skills } from "#domain/agents/Skills"
import { toConnection } from "#domain/oauth/GrantsApi"
import { Config } from "#infrastructure/platform/Config"
import { iso, isoOrNull, lowerCase } from "#infrastructure/wire/Text"
import { Forbidden, ValidationFailed } from "#infrastructure/wire/WireError"
import { AccountRescue } from "#interfaces/operator/AccountRescue"
import type { AgentAccount } from "#interfaces/operator/AgentAccount"
import { accountShown, AgentAdmin, agentPage, countShown, statusOf } from "#interfaces/operator/AgentAdmin"
import { AuditLog } from "#interfaces/operator/AuditLog"
import { isFromCommandLine } from "#interfaces/operator/ConsoleAccess"
import { Erasure } from "#interfaces/operator/Erasure"
import { GrantAdmin } from "#interfaces/operator/GrantAdmin"
import { NewAgents } from "#interfaces/operator/NewAgents"
import { Nodes } from "#interfaces/operator/Nodes"
import { Clock, Effect, Layer } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { type AgentDetail, AgentsApi } from "./AgentsApi.ts"
import { consoleApiOf, CurrentOperator } from "./ConsoleAuthorization.ts"
import { explain } from "./DeliveryDiagnosis.ts"
import { endedShown } from "./OAuthApi.ts"

/** How many of the waiting messages are checked for mutes. */
const LOOKED = 200
const LOG = 20

const wordsOf = (agent: AgentAccount, now: number): string => {
  switch (statusOf(agent, now)) {
    case "deleted":
      return `Deleted at ${isoOrNull(agent.deletedAt)}.`
    case "suspended":
      return `Suspended since ${isoOrNull(agent.suspendedAt)}, until an operator restores it.`
    case "restricted":
      return `Restricted until ${isoOrNull(agent.restrictedUntil)}: it cannot begin a conversation with a stranger.`
    case "active":
      return "Active."
  }
}

/**
 * The operator, if the call comes from the command line. A new key, or a mailbox that gets one, opens all messages of the
 * agent.
 */
const commandLineOnly = Effect.flatMap(CurrentOperator, (access) =>
  isFromCommandLine(access)
    ? Effect.succeed(access.operator)
    : Effect.fail(
      new Forbidden({
        message: "Only the command line may do this: npm run admin -- agents rekey, or agents set-email."
      })
    ))

export const AgentsHttp = HttpApiBuilder.group(
  consoleApiOf(AgentsApi),
  "operatedAgents",
  (handlers) =>
    Effect.gen(function*() {
      const agents = yield* AgentAdmin
      const audit = yield* AuditLog
      const config = yield* Config
      const connections = yield* GrantAdmin
      const erasure = yield* Erasure
      const newAgents = yield* NewAgents
      const nodes = yield* Nodes
      const rescue = yield* AccountRescue
      const skills = yield* Skills

      const find = (handle: string) => agents.find(handle)

      const detail = Effect.fnUntraced(function*(handle: string) {
        const agent = yield* find(handle)
        const now = yield* Clock.currentTimeMillis
        const [amounts, own, here, counts, webhooks, allowed, log] = yield* Effect.all([
          agents.amounts(agent.id),
          skills.of(agent.id),
          nodes.agent(agent.id),
          agents.counts(agent),
          agents.webhooks(agent.id),
          connections.list(agent.id),
          audit.list({ handle: agent.handle, operator: null, looks: false, before: null, limit: LOG })
        ], { concurrency: "unbounded" })
        const [oldest] = yield* agents.waiting(agent.id, amounts.deliveredThrough, now, 1)
        const shown: AgentDetail = {
          ...accountShown(agent, now),
          words: wordsOf(agent, now),
          restricted_until: statusOf(agent, now) === "restricted" ? isoOrNull(agent.restrictedUntil) : null,
          suspended_at: isoOrNull(agent.suspendedAt),
          counted_from: isoOrNull(agent.countedFrom),
          counts: counts.map(countShown),
          skills: own,
          inbox_mode: agent.inboxMode,
          group_invite_policy: agent.groupInvitePolicy,
          inbox: {
            last_no: amounts.lastNo,
            undelivered: amounts.undelivered,
            oldest_waiting: oldest === undefined
              ? null
              : { at: iso(oldest.at ?? now), conversation_id: oldest.conversationId, seq: oldest.seq }
          },
          conversations: amounts.conversations,
          open_tasks: { called: amounts.tasksCalled, calling: amounts.tasksCalling },
          groups: amounts.groups,
          contacts: amounts.contacts,
          blocks_made: amounts.blocksMade,
          blocks_received: amounts.blocksReceived,
          mutes: amounts.mutes,
          attachment_bytes: amounts.attachmentBytes,
          sockets: here.sockets.map((socket) => ({
            node: socket.node,
            since: iso(socket.since),
            client: socket.client,
            acknowledges: socket.acknowledges,
            cursor: socket.cursor,
            behind: Math.max(0, amounts.lastNo - socket.cursor),
            unsent_bytes: socket.unsentBytes,
            unacknowledged: socket.unacknowledged,
            is_live: socket.isLive
          })),
          silent_nodes: here.silent,
          rates: here.rates.map(({ count, limit, name, windowMs }) => ({
            name,
            limit,
            count,
            window_seconds: windowMs / 1_000
          })),
          webhooks: webhooks.map((webhook) => ({
            id: webhook.id,
            url: webhook.url,
            events: webhook.events,
            active: webhook.active,
            circuit: webhook.pausedUntil === null ? "closed" : webhook.pausedUntil > now ? "paused" : "probing",
            paused_until: isoOrNull(webhook.pausedUntil),
            waiting: webhook.waiting,
            dead: webhook.dead,
            last_failure: webhook.failure
          })),
          connections: allowed.map((connection) => ({ ...toConnection(connection), client_id: connection.clientId })),
          log: log.map((row) => ({ at: iso(row.at), operator: row.operator, action: row.action, reason: row.detail }))
        }
        return shown
      })

      /** A viewer sees no addresses. */
      const masked = <A extends { readonly email: string }>(agent: A): Effect.Effect<A, never, CurrentOperator> =>
        Effect.map(CurrentOperator, ({ role }) => role === "viewer" ? { ...agent, email: MASKED } : agent)

      return handlers.handleAll({
        agents: Effect.fnUntraced(function*({ query: { email, handle, order, status, ...page } }) {
          const { role } = yield* CurrentOperator
          if (role === "viewer" && email !== undefined && email !== "")
            return yield* new Forbidden({ message: "The role viewer may not search for addresses." })
          const found = yield* agentPage(agents, {
            handle: lowerCase((handle ?? "").trim().replace(/^@/, "")),
            email: (email ?? "").trim().toLowerCase(),
            status: status ?? null,
            order: order ?? "handle",
            ...page
          })
          return { ...found, agents: yield* Effect.forEach(found.agents, masked) }
        }),
        agent: ({ params }) => Effect.flatMap(detail(params.handle), masked),
        why: Effect.fnUntraced(function*({ params }) {
          const agent = yield* find(params.handle)
          const now = yield* Clock.currentTimeMillis
          const [amounts, here, webhooks] = yield* Effect.all([
            agents.amounts(agent.id),
            nodes.agent(agent.id),
            agents.webhooks(agent.id)
          ], { concurrency: "unbounded" })
          const waiting = yield* agents.waiting(agent.id, amounts.deliveredThrough, now, LOOKED)
          return explain({
            handle: agent.handle,
            status: statusOf(agent, now),
            now,
            lastNo: amounts.lastNo,
            undelivered: amounts.undelivered,
            newestAt: amounts.newestAt,
            oldestWaitingAt: waiting[0]?.at ?? null,
            looked: waiting.length,
            muted: waiting.filter(({ muted }) => muted).length,
            silentNodes: here.silent,
            sockets: here.sockets,
            unsentLimit: config.SOCKETS_UNSENT_BYTES,
            webhooks
          })
        }),
        disconnect: Effect.fnUntraced(function*({ params, payload }) {
          const { operator } = yield* CurrentOperator
          const agent = yield* find(params.handle)
          const { closed, silent } = yield* nodes.disconnect(agent, { operator, reason: payload.reason ?? null })
          const missing = silent.length === 0 ? "" : ` ${silent.join(", ")} did not answer.`
          return {
            ok: true as const,
            message: `${closed === 1 ? "1 socket is" : `${closed} sockets are`} closed.${missing}`,
            sockets: closed
          }
        }),
        endConnections: Effect.fnUntraced(function*({ params, payload }) {
          const { operator } = yield* CurrentOperator
          const ended = yield* connections.endOf(yield* find(params.handle), {
            operator,
            reason: payload.reason ?? null
          })
          return endedShown(ended)
        }),
        suspend: Effect.fnUntraced(function*({ params, payload }) {
          const { operator } = yield* CurrentOperator
          const agent = yield* find(params.handle)
          yield* agents.suspend(agent, { operator, reason: payload.reason ?? null })
          return yield* detail(agent.handle)
        }),
        restore: Effect.fnUntraced(function*({ params, payload }) {
          const { operator } = yield* CurrentOperator
          const agent = yield* find(params.handle)
          yield* agents.restore(agent, { operator, reason: payload.reason ?? null })
          return yield* detail(agent.handle)
        }),
        rekey: Effect.fnUntraced(function*({ params, payload }) {
          const operator = yield* commandLineOnly
          const because = { operator, reason: payload.reason ?? null }
          const { agent, apiKey } = yield* rescue.rekey(yield* find(params.handle), because)
          return { handle: agent.handle, api_key: apiKey }
        }),
        createAgents: Effect.fnUntraced(
          function*({ payload: { display_name: displayName = null, email = null, handles } }) {
            const { operator } = yield* CurrentOperator
            const made = yield* newAgents.create({ handles, email, displayName, operator })
            return { agents: made.map(({ apiKey, ...agent }) => ({ ...agent, api_key: apiKey })) }
          }
        ),
        setEmail: Effect.fnUntraced(function*({ params, payload }) {
          const operator = yield* commandLineOnly
          const agent = yield* find(params.handle)
          yield* rescue.setEmail(agent, payload.email, { operator, reason: payload.reason ?? null })
          return yield* detail(agent.handle)
        }),
        erase: Effect.fnUntraced(function*({ params, payload }) {
          const { operator } = yield* CurrentOperator
          const agent = yield* find(params.handle)
          if (payload.confirm !== agent.handle)
            return yield* ValidationFailed.field("confirm", "must be the agent's handle")
          const erased = yield* erasure.erase({
            agentId: agent.id,
            handle: agent.handle,
            operator,
            reason: payload.reason ?? null
          })
          return { ok: true as const, ...erased }
        })
      })
    })
).pipe(Layer.provide(NewAgents.layer))
