import { statusAt } from "#domain/agents/Agent"
import { iso, isoOrNull } from "#infrastructure/wire/Text"
import type { NotFound, Unavailable } from "#infrastructure/wire/WireError"
import { type AgentAccount, AgentAdmin, countShown, statusOf } from "#interfaces/operator/AgentAdmin"
import { AuditLog } from "#interfaces/operator/AuditLog"
import type { Conflict } from "#interfaces/operator/Conflict"
import { Erasure } from "#interfaces/operator/Erasure"
import { NewAgents } from "#interfaces/operator/NewAgents"
import { Clock, Effect } from "effect"
import { type Answers, findAgent, refuse } from "./Answers.ts"
import { plain, table } from "./TextTable.ts"

const DAY_MS = 86_400_000
/** The entries of the audit log that `show` includes. */
const LOG = 10

const spanOf = (ms: number): string =>
  ms > DAY_MS && ms % DAY_MS === 0
    ? `${ms / DAY_MS} days`
    : ms % 3_600_000 === 0
    ? `${ms / 3_600_000} hours`
    : `${ms / 1_000} seconds`

const standing = (agent: AgentAccount, now: number): string => {
  if (agent.deletedAt !== null) return `deleted at ${iso(agent.deletedAt)}`
  const status = statusOf(agent, now)
  if (status === "suspended") return `suspended since ${agent.suspendedAt === null ? "?" : iso(agent.suspendedAt)}`
  return status === "restricted" ? `restricted until ${isoOrNull(agent.restrictedUntil)}` : "active"
}

/** Refuses the command with the message of an action that was not possible. */
const refused = <A>(action: Effect.Effect<A, NotFound | Conflict | Unavailable>) =>
  Effect.catchTag(action, ["NotFound", "Conflict"], ({ message }) => refuse(plain(message)))

/** The commands about one agent, and the creation of agents. */
export const agentAnswers = Effect.gen(function*() {
  const agents = yield* AgentAdmin
  const audit = yield* AuditLog
  const erasure = yield* Erasure
  const newAgents = yield* NewAgents

  const answers: Answers<"Show" | "Suspend" | "Restore" | "Create" | "Erase"> = {
    Show: Effect.fnUntraced(function*({ handle, operator }) {
      const agent = yield* findAgent(agents, handle)
      yield* audit.note({ operator, action: "show", handle: agent.handle, detail: null })
      const now = yield* Clock.currentTimeMillis
      const counts = yield* agents.counts(agent)
      const log = yield* audit.list({ handle: agent.handle, operator: null, looks: false, before: null, limit: LOG })
      const rows = [
        ["handle", agent.handle],
        ["id", agent.id],
        ["email", agent.email],
        ["created", iso(agent.createdAt)],
        ["state", standing(agent, now)],
        ...counts.map(({ counted, effect, threshold, what, windowMs }) => [
          what,
          `${counted} by agents it wrote to first in the last ${spanOf(windowMs)}; ${threshold} make it ${effect}`
        ]),
        ...(agent.countedFrom === null ? [] : [["restored", `${iso(agent.countedFrom)}; nothing from before counts`]]),
        ...log.map((
          row
        ) => [
          "log",
          `${iso(row.at)} ${row.action} by ${plain(row.operator ?? "enforcement")}${
            row.detail === null ? "" : `: ${plain(row.detail)}`
          }`
        ])
      ]
      return {
        text: table(rows),
        data: {
          handle: agent.handle,
          id: agent.id,
          email: agent.email,
          created_at: iso(agent.createdAt),
          status: statusOf(agent, now),
          restricted_until: statusAt("active", agent.restrictedUntil, now) === "restricted"
            ? isoOrNull(agent.restrictedUntil)
            : null,
          suspended_at: isoOrNull(agent.suspendedAt),
          deleted_at: isoOrNull(agent.deletedAt),
          counted_from: isoOrNull(agent.countedFrom),
          counts: counts.map(countShown),
          log: log.map((row) => ({ at: iso(row.at), operator: row.operator, action: row.action, reason: row.detail }))
        }
      }
    }),
    Suspend: Effect.fnUntraced(function*({ handle, operator, reason }) {
      const agent = yield* findAgent(agents, handle)
      yield* refused(agents.suspend(agent, { operator, reason }))
      return { text: `${agent.handle} is suspended.`, data: { handle: agent.handle, status: "suspended" } }
    }),
    Restore: Effect.fnUntraced(function*({ handle, operator, reason }) {
      const agent = yield* findAgent(agents, handle)
      yield* refused(agents.restore(agent, { operator, reason }))
      return {
        text: `${agent.handle} is active. Earlier blocks and reports no longer count.`,
        data: { handle: agent.handle, status: "active" }
      }
    }),
    Create: Effect.fnUntraced(function*(command) {
      const made = yield* refused(newAgents.create(command))
      return {
        text: table(made.map(({ apiKey, handle }) => [handle, apiKey])),
        data: made.map(({ apiKey, ...agent }) => ({ ...agent, api_key: apiKey }))
      }
    }),
    Erase: Effect.fnUntraced(function*({ handle, operator, reason }) {
      const agent = yield* findAgent(agents, handle)
      const given = { agentId: agent.id, handle: agent.handle, operator, reason }
      const { message, remains, removed } = yield* Effect.catchTag(
        erasure.erase(given),
        "Unavailable",
        (error) => refuse(error.message)
      )
      return {
        text: [
          message,
          "",
          table([["removed", ""], ...removed.map(({ what, words }) => [what, words])]),
          "",
          table([["remains", "because"], ...remains.map(({ what, why }) => [what, why])])
        ].join("\n"),
        data: {
          handle: agent.handle,
          message,
          removed: removed.map((one) => ({ ...one })),
          remains: remains.map((one) => ({ ...one }))
        }
      }
    })
  }
  return answers
})
