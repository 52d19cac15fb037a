import { Effect } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import { ask } from "./AdminClient.ts"
import { fieldsOf, get, path, post, withQuery } from "./ApiCall.ts"
import { cursor, example, handle, json, reason, server } from "./Flags.ts"

const idOf = (what: string) => Argument.String("id").pipe(Argument.withDescription(`Id of the ${what}`))
const groupId = Argument.String("id").pipe(Argument.withDescription("Id of the group, as shown by `groups find`"))

/** A command that changes a message, a file or a group, with an optional reason for the audit log. */
const change = (name: string, id: typeof groupId, pathOf: (id: string) => string) =>
  Command.make(
    name,
    { id, reason, server, json },
    ({ id, reason, ...given }) => ask(given, post(pathOf(id), fieldsOf({ reason })))
  )

/** A command that changes a member of a group. */
const changeMember = (name: "promote" | "remove") =>
  Command.make(
    name,
    { id: groupId, handle, reason, server, json },
    ({ handle, id, reason, ...given }) =>
      ask(given, post(path`/groups/${id}/members/${handle}/${name}`, fieldsOf({ reason })))
  )

export const content = Command.make("content").pipe(
  Command.withDescription("Remove a message for all its readers, or quarantine a file"),
  example("A message", "remove msg_0f1e2d3c4b5a6978"),
  Command.withSubcommands([
    change("remove", idOf("message"), (id) => path`/messages/${id}/remove`).pipe(
      Command.withDescription("Empty a message for everybody; it keeps its place, and does not come back"),
      example("A message", 'msg_0f1e2d3c4b5a6978 --reason "a stolen address"')
    ),
    change("quarantine", idOf("file"), (id) => path`/files/${id}/quarantine`).pipe(
      Command.withDescription("Hide a file from all agents; it is deleted after 30 days"),
      example("A file", 'att_0f1e2d3c4b5a6978 --reason "malware"')
    ),
    change("release", idOf("file"), (id) => path`/files/${id}/release`).pipe(
      Command.withDescription("Show a quarantined file again to those who could see it"),
      example("The same file", "att_0f1e2d3c4b5a6978")
    )
  ])
)

export const groups = Command.make("groups").pipe(
  Command.withDescription("Show groups and their members, never their messages; change or delete a group"),
  example("All groups of ada", "find --member ada"),
  Command.withSubcommands([
    Command.make(
      "find",
      {
        name: Flag.String("name").pipe(Flag.withDescription("A part of the name"), Flag.optional),
        member: Flag.String("member").pipe(Flag.withDescription("The handle of a member"), Flag.optional),
        cursor,
        server,
        json
      },
      ({ cursor, member, name, ...given }) => ask(given, get(withQuery("/groups", { name, member, cursor })))
    ).pipe(
      Command.withDescription("Find groups by a part of their name, or by a member"),
      example("All groups of ada", "--member ada")
    ),
    Command.make(
      "look",
      { id: groupId, server, json },
      (given) => ask(given, get(path`/groups/${given.id}`))
    ).pipe(
      Command.withDescription("Show a group with its members and the number of invited agents"),
      example("One group", "grp_0f1e2d3c4b5a6978")
    ),
    changeMember("promote").pipe(
      Command.withDescription("Make a member an admin of its group; the members are told"),
      example("Whose admins have lost their keys", "grp_0f1e2d3c4b5a6978 ada")
    ),
    changeMember("remove").pipe(
      Command.withDescription("Remove a member from its group; the members are told"),
      example("One that advertises", 'grp_0f1e2d3c4b5a6978 nina --reason "advertisements"')
    ),
    Command.make("delete", {
      id: groupId,
      yes: Flag.Boolean("yes").pipe(
        Flag.withDescription("Confirm the command: a deleted group does not come back"),
        Flag.withDefault(false)
      ),
      reason,
      server,
      json
    }, ({ id, reason, yes, ...given }) =>
      yes
        ? ask(given, post(path`/groups/${id}/delete`, fieldsOf({ reason })))
        : Effect.fail({ message: "Nothing was done. Run the command with --yes to delete the group permanently." }))
      .pipe(
        Command.withDescription("Delete a group; the members are told"),
        example("One that only advertises", 'grp_0f1e2d3c4b5a6978 --yes --reason "advertisements"')
      )
  ])
)
