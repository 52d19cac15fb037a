import { Email } from "#domain/registration/RegistrationApi"
import { documented } from "#infrastructure/http/Documented"
import { Limit } from "#infrastructure/wire/Page"
import { DateTimeString, Storable } from "#infrastructure/wire/Text"
import { NotFound } from "#infrastructure/wire/WireError"
import { Reason } from "#interfaces/operator/Reason"
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, OpenApi } from "effect/http-api"
import { ConsoleAuthorization, Needs } from "./ConsoleAuthorization.ts"

const between = (minimum: number, maximum: number) => Schema.Int.check(Schema.isBetween({ minimum, maximum }))

const invitation = {
  id: Schema.String,
  email: Schema.NullOr(Schema.String),
  note: Schema.NullOr(Schema.String),
  uses: Schema.Int,
  used: Schema.Int,
  state: Schema.Literals(["open", "used", "ended"]),
  created_at: DateTimeString,
  expires_at: DateTimeString
}
export const InvitationRow = Schema.Struct(invitation).annotate({ identifier: "Invitation" })
export const InvitationsPage = Schema.Struct({
  invitations: Schema.Array(InvitationRow),
  next_cursor: Schema.NullOr(Schema.String)
})
/** The response with a new invitation, whose code is shown once. */
export const NewInvitation = Schema.Struct({
  ...invitation,
  code: Schema.String,
  url: Schema.String,
  words: Schema.String
})

const row = {
  id: "ivt_0f1e2d3c4b5a6978",
  email: null,
  note: "the Lisbon office",
  uses: 10,
  used: 0,
  state: "open",
  created_at: "2026-11-22T09:00:00.000Z",
  expires_at: "2026-11-29T09:00:00.000Z"
} as const

/** The endpoints for invitations (wire.md T). */
export class InvitationsApi extends HttpApiGroup.make("invitations")
  .add(
    HttpApiEndpoint.get("invitations", "/console/api/invitations", {
      query: { limit: Schema.optionalKey(Limit), cursor: Schema.optionalKey(Schema.String) },
      success: InvitationsPage
    }).annotateMerge(documented({
      summary: "List invitations",
      description: "Lists the invitations, the newest first. Those that ended more than 30 days ago are not kept.",
      answer: { invitations: [row], next_cursor: null }
    })),
    HttpApiEndpoint.post("invite", "/console/api/invitations", {
      payload: Schema.Struct({
        uses: Schema.optionalKey(between(1, 1_000)),
        days: Schema.optionalKey(between(1, 365)),
        email: Schema.optionalKey(Schema.NullOr(Email)),
        note: Schema.optionalKey(Reason)
      }),
      success: NewInvitation
    }).annotateMerge(documented({
      summary: "Invite people",
      description:
        "Makes an invitation for one registration, or for as many as `uses` says, that ends after `days`, 7 by default. With an `email`, only " +
        "this address can register with it, also without the code. The code and its link are shown only in this answer.",
      body: { uses: 10, days: 7, note: "the Lisbon office" },
      answer: {
        ...row,
        code: "inv_K7rQ2mZ0yX4vB8nL1tG5cH9sD3fJ6kP0wE2aR7uI4oM",
        url: "https://parley.example/join#inv_K7rQ2mZ0yX4vB8nL1tG5cH9sD3fJ6kP0wE2aR7uI4oM",
        words: "Everybody who has the link can register with it."
      }
    })).annotate(Needs, "moderator"),
    HttpApiEndpoint.post("endInvitation", "/console/api/invitations/:id/end", {
      params: { id: Storable },
      success: InvitationRow,
      error: NotFound
    }).annotateMerge(documented({
      summary: "End an invitation",
      description: "Ends an invitation. Agents that were registered with it stay.",
      parameters: { id: row.id },
      answer: { ...row, state: "ended" }
    })).annotate(Needs, "moderator")
  )
  .middleware(ConsoleAuthorization)
  .annotateMerge(
    OpenApi.annotations({ title: "Invitations", description: "Who may register although not everybody may." })
  )
{}
