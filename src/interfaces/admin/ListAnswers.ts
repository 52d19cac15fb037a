import { iso } from "#infrastructure/wire/Text"
import { AgentAdmin, agentPage } from "#interfaces/operator/AgentAdmin"
import { AuditLog } from "#interfaces/operator/AuditLog"
import { DeadDeliveries } from "#interfaces/operator/DeadDeliveries"
import { Reports } from "#interfaces/operator/Reports"
import { Effect } from "effect"
import { type Answers, findAgent, refuse } from "./Answers.ts"
import { plain, table } from "./TextTable.ts"

/** The most agents on a page. */
const AGENTS = 1_000

/** The lists of agents, of reports, of dead webhook deliveries and of the audit log. */
export const listAnswers = Effect.gen(function*() {
  const agents = yield* AgentAdmin
  const audit = yield* AuditLog
  const deadDeliveries = yield* DeadDeliveries
  const reports = yield* Reports

  const answers: Answers<"Agents" | "Reports" | "DeadWebhooks" | "Audit"> = {
    Agents: Effect.fnUntraced(function*({ cursor, limit, operator, status }) {
      yield* audit.note({ operator, action: "list agents", handle: null, detail: null })
      const query = { handle: "", email: "", status, order: "handle", limit } as const
      const page = yield* Effect.catchTag(
        agentPage(agents, cursor === null ? query : { ...query, cursor }, AGENTS),
        "ValidationFailed",
        () => refuse("This cursor is not one that `agents list` printed.")
      )
      const rows = page.agents.map((row) => [
        row.handle,
        row.status,
        row.created_at,
        String(row.undelivered),
        row.waiting_since ?? "",
        plain(row.email)
      ])
      const more = page.next_cursor === null ? "" : `\nThere are more: --cursor ${page.next_cursor}`
      return {
        text: rows.length === 0
          ? "There is no such agent."
          : table([["handle", "status", "created", "waiting", "since", "email"], ...rows]) + more,
        data: { agents: page.agents.map((row) => ({ ...row })), next_cursor: page.next_cursor }
      }
    }),
    Reports: Effect.fnUntraced(function*({ limit, operator, state }) {
      yield* audit.note({ operator, action: "list reports", handle: null, detail: null })
      const rows = yield* reports.list({ state, agent: null, after: null, limit })
      return {
        text: table([
          ["id", "when", "reported", "by", "state", "counts", "reason"],
          ...rows.map((
            row
          ) => [
            row.id,
            iso(row.createdAt),
            row.reported,
            row.reporter,
            row.state,
            row.counts ? "yes" : "no",
            plain(row.reason)
          ])
        ]),
        data: rows.map(({ counts, createdAt, id, reason, reported, reporter, state }) => ({
          id,
          created_at: iso(createdAt),
          reporter,
          reported,
          reason,
          state,
          counts
        }))
      }
    }),
    DeadWebhooks: Effect.fnUntraced(function*({ limit, operator }) {
      yield* audit.note({ operator, action: "list dead webhooks", handle: null, detail: null })
      const rows = yield* deadDeliveries.list({ agent: null, webhook: null, after: null, limit })
      return {
        text: table([
          ["no", "died", "agent", "webhook", "event", "attempts", "last failure", "url"],
          ...rows.map((row) => [
            String(row.no),
            iso(row.deadAt),
            row.agent,
            row.webhookId,
            row.event,
            String(row.attempts),
            plain(row.failure),
            plain(row.url)
          ])
        ]),
        data: rows.map(({ agent, attempts, deadAt, event, failure, no, url, webhookId }) => ({
          no,
          handle: agent,
          webhook_id: webhookId,
          url,
          event,
          attempts,
          failure,
          dead_at: iso(deadAt)
        }))
      }
    }),
    Audit: Effect.fnUntraced(function*(command) {
      const handle = command.handle === null ? null : (yield* findAgent(agents, command.handle)).handle
      yield* audit.note({ operator: command.operator, action: "show audit", handle, detail: null })
      const rows = yield* audit.list({
        handle,
        operator: command.by,
        looks: command.looks,
        before: null,
        limit: command.limit
      })
      return {
        text: table([
          ["when", "who", "what", "agent", "reason"],
          ...rows.map((
            row
          ) => [iso(row.at), plain(row.operator ?? "enforcement"), row.action, row.agent ?? "", plain(row.detail)])
        ]),
        data: rows.map(({ action, agent, at, detail, no, operator }) => ({
          no,
          at: iso(at),
          operator,
          action,
          handle: agent,
          reason: detail
        }))
      }
    })
  }
  return answers
})
