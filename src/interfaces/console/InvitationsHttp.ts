import { MASKED } from "#domain/agents/Agent"
import { invitationWords } from "#domain/registration/Admissions"
import { Config } from "#infrastructure/platform/Config"
import { publicUrl } from "#infrastructure/platform/PublicUrl"
import { CursorId, rowsOf } from "#infrastructure/wire/Page"
import { iso } from "#infrastructure/wire/Text"
import { MAX_ROWS } from "#interfaces/operator/AgentAdmin"
import { type Invitation, Invitations } from "#interfaces/operator/Invitations"
import { Clock, Effect, Schema } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { consoleApiOf, CurrentOperator } from "./ConsoleAuthorization.ts"
import { InvitationsApi } from "./InvitationsApi.ts"

const DAY_MS = 86_400_000
const DEFAULT_DAYS = 7
const AfterInvitation = Schema.Struct({ at: Schema.Int, id: CursorId })

const shown = ({ createdAt, email, expiresAt, id, note, used, uses }: Invitation, now: number) => ({
  id,
  email,
  note,
  uses,
  used,
  state: used >= uses ? "used" as const : expiresAt > now ? "open" as const : "ended" as const,
  created_at: iso(createdAt),
  expires_at: iso(expiresAt)
})

export const InvitationsHttp = HttpApiBuilder.group(
  consoleApiOf(InvitationsApi),
  "invitations",
  (handlers) =>
    Effect.gen(function*() {
      const config = yield* Config
      const invitations = yield* Invitations

      return handlers.handleAll({
        invitations: Effect.fnUntraced(function*({ query }) {
          const now = yield* Clock.currentTimeMillis
          const { nextCursor, rows } = yield* rowsOf(query, {
            max: MAX_ROWS,
            position: AfterInvitation,
            rows: (after, limit) => invitations.list(after, limit),
            positionOf: ({ createdAt, id }) => ({ at: createdAt, id })
          })
          const { role } = yield* CurrentOperator
          const seen = (row: Invitation) => role === "viewer" && row.email !== null ? { ...row, email: MASKED } : row
          return { invitations: rows.map((row) => shown(seen(row), now)), next_cursor: nextCursor }
        }),
        invite: Effect.fnUntraced(function*({ payload: { days = DEFAULT_DAYS, email = null, note = null, uses = 1 } }) {
          const { operator } = yield* CurrentOperator
          const { code, invitation } = yield* invitations.create({
            uses,
            lifetimeMs: days * DAY_MS,
            email,
            note,
            operator
          })
          // The code is in the URL's fragment, because browsers do not send the fragment to a server.
          return {
            ...shown(invitation, invitation.createdAt),
            code,
            url: `${publicUrl(config)}/join#${code}`,
            words: invitationWords(config, email)
          }
        }),
        endInvitation: Effect.fnUntraced(function*({ params }) {
          const { operator } = yield* CurrentOperator
          return shown(yield* invitations.end(params.id, operator), yield* Clock.currentTimeMillis)
        })
      })
    })
)
