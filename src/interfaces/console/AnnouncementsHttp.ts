import { CursorId, rowsOf } from "#infrastructure/wire/Page"
import { iso, isoOrNull } from "#infrastructure/wire/Text"
import { AgentAdmin, MAX_ROWS } from "#interfaces/operator/AgentAdmin"
import { type Announcement, Announcements } from "#interfaces/operator/Announcements"
import { Effect, Schema } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { AnnouncementsApi } from "./AnnouncementsApi.ts"
import { consoleApiOf, CurrentOperator } from "./ConsoleAuthorization.ts"

const AfterAnnouncement = Schema.Struct({ at: Schema.Int, id: CursorId })

const shown = ({ createdAt, finishedAt, id, text, told }: Announcement) => ({
  id,
  text,
  at: iso(createdAt),
  told,
  finished_at: isoOrNull(finishedAt)
})

export const AnnouncementsHttp = HttpApiBuilder.group(
  consoleApiOf(AnnouncementsApi),
  "announcements",
  (handlers) =>
    Effect.gen(function*() {
      const agents = yield* AgentAdmin
      const announcements = yield* Announcements
      return handlers.handleAll({
        announcements: Effect.fnUntraced(function*({ query }) {
          const { nextCursor, rows } = yield* rowsOf(query, {
            max: MAX_ROWS,
            position: AfterAnnouncement,
            rows: (after, limit) => announcements.list(after, limit),
            positionOf: ({ createdAt, id }) => ({ at: createdAt, id })
          })
          return { announcements: rows.map(shown), next_cursor: nextCursor }
        }),
        announce: Effect.fnUntraced(function*({ payload }) {
          const { operator } = yield* CurrentOperator
          return shown(yield* announcements.tellAll(payload.text, operator))
        }),
        tell: Effect.fnUntraced(function*({ params, payload }) {
          const { operator } = yield* CurrentOperator
          const agent = yield* agents.find(params.handle)
          yield* announcements.tell(agent, payload.text, operator)
          return { ok: true as const, message: `@${agent.handle} is told.` }
        })
      })
    })
)
