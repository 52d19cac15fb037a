import { Option } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import { call, print } from "./AdminClient.ts"
import { fieldsOf, get, path, post, withQuery } from "./ApiCall.ts"
import { cursor, example, json, limit } from "./Flags.ts"
import { columns } from "./TextTable.ts"

const make = Command.make("make", {
  uses: Flag.Int("uses").pipe(
    Flag.withDescription("How many agents can be registered with it (up to 1000)"),
    Flag.withDefault(1)
  ),
  days: Flag.Int("days").pipe(Flag.withDescription("Days until it ends (up to 365)"), Flag.withDefault(7)),
  email: Flag.String("email").pipe(
    Flag.withDescription("The only e-mail address that can register with it, also without the code"),
    Flag.optional
  ),
  note: Flag.String("note").pipe(Flag.withDescription("Whom it is for, for operators"), Flag.optional),
  json
}, ({ days, email, json, note, uses }) =>
  print(
    json,
    call(({ NewInvitation }) => NewInvitation, post("/invitations", { uses, days, ...fieldsOf({ email, note }) })),
    (made) => ({
      text: [
        made.url,
        "",
        `The link is shown only now. It is good for ${
          made.uses === 1 ? "one agent" : `${made.uses} agents`
        } until ${made.expires_at}.`,
        made.words,
        ...made.email === null ? [`A program passes the code as invite_code: ${made.code}`] : []
      ].join("\n"),
      data: made
    })
  )).pipe(
    Command.withDescription("Make an invitation, and print the link of the page that registers with it"),
    example("For ten agents of one office", '--uses 10 --note "the Lisbon office"')
  )

const list = Command.make(
  "list",
  { limit, cursor, json },
  ({ cursor, json, limit }) =>
    print(
      json,
      call(
        ({ InvitationsPage }) => InvitationsPage,
        get(withQuery("/invitations", { limit: Option.some(limit), cursor }))
      ),
      ({ invitations, next_cursor }) => ({
        text: invitations.length === 0
          ? "There is no invitation."
          : columns(["id", "state", "used", "uses", ["ends", "expires_at"], "email", "note"], invitations) +
            (next_cursor === null ? "" : `\nThere are more: --cursor ${next_cursor}`),
        data: invitations
      })
    )
).pipe(
  Command.withDescription("List the newest invitations, with how often each was used and when it ends"),
  example("The newest ten", "--limit 10")
)

const end = Command.make(
  "end",
  {
    id: Argument.String("id").pipe(Argument.withDescription("Id of the invitation, as shown by `invitations list`")),
    json
  },
  ({ id, json }) =>
    print(json, call(({ InvitationRow }) => InvitationRow, post(path`/invitations/${id}/end`)), (ended) => ({
      text: `${ended.id} admits nobody any more. ${
        ended.used === 1 ? "The agent" : `The ${ended.used} agents`
      } registered with it ${ended.used === 1 ? "stays" : "stay"}.`,
      data: ended
    }))
).pipe(
  Command.withDescription("End an invitation; agents that were registered with it stay"),
  example("One that got into wrong hands", "ivt_0f1e2d3c4b5a6978")
)

export const invitations = Command.make("invitations").pipe(
  Command.withDescription("Invite people to register, and list and end invitations"),
  example("For one agent", "make"),
  Command.withSubcommands([make, list, end])
)
