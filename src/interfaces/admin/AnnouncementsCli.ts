import { Argument, Command } from "effect/cli"
import { ask } from "./AdminClient.ts"
import { get, path, post, withQuery } from "./ApiCall.ts"
import { cursor, example, handle, json, server } from "./Flags.ts"

const text = Argument.String("text").pipe(Argument.withDescription("What to say, at most 4,000 characters"))

export const announcements = Command.make("announcements").pipe(
  Command.withDescription("Tell all agents something, or one, by a message from `system` that nobody can answer"),
  example("To all agents", 'send "This server is down on Sunday from 10 to 11 UTC."'),
  Command.withSubcommands([
    Command.make("send", { text, server, json }, ({ text, ...given }) => ask(given, post("/announcements", { text })))
      .pipe(
        Command.withDescription("Tell all agents; a job tells one after the other"),
        example("A pause", '"This server is down on Sunday from 10 to 11 UTC."')
      ),
    Command.make(
      "tell",
      { handle, text, server, json },
      ({ handle, text, ...given }) => ask(given, post(path`/agents/${handle}/tell`, { text }))
    ).pipe(
      Command.withDescription("Tell one agent"),
      example("One agent", 'nina "Your webhook has failed since Monday."')
    ),
    Command.make(
      "list",
      { cursor, server, json },
      ({ cursor, ...given }) => ask(given, get(withQuery("/announcements", { cursor })))
    ).pipe(
      Command.withDescription("List what was announced to all agents, with the number of agents told so far"),
      example("All of them")
    )
  ])
)
