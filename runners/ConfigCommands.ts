import { Config, ConfigInvalid, effective } from "#infrastructure/platform/Config"
import { print } from "#interfaces/admin/AdminClient"
import { json } from "#interfaces/admin/Flags"
import { settingsShown } from "#interfaces/admin/SettingsTable"
import { Console, Effect } from "effect"
import { Command, Flag } from "effect/cli"
import { settleNode, settleStandalone } from "./Settle.ts"

/** How many settings come from each place, such as `3 from /etc/parley.env, 2 from the environment`. */
const countsOf = (origins: ReadonlyMap<string, string>): string => {
  const counts = new Map<string, number>()
  for (const origin of origins.values()) {
    const place = origin === "environment" ? "the environment" : origin.replace(/:\d+$/, "")
    counts.set(place, (counts.get(place) ?? 0) + 1)
  }
  return [...counts].map(([place, n]) => `${n} from ${place}`).join(", ")
}

const warn = Effect.flatMap(
  Config.warnings,
  Effect.forEach((warning) => Console.error(`parley: ${warning}`), { discard: true })
)

const node = Flag.Boolean("node").pipe(
  Flag.withDescription("Check the settings of a node (`parley runner`)"),
  Flag.withDefault(false)
)

const check = Command.make("check", { node }, ({ node }) =>
  Effect.gen(function*() {
    yield* warn
    // The problems of a server's kind are printed too if other settings are invalid.
    const { problems, values } = yield* Config.tried
    const settled = yield* Effect.result((node ? settleNode : settleStandalone)(values))
    const all = [...problems, ...settled._tag === "Failure" ? settled.failure.problems : []]
    if (all.length > 0) return yield* new ConfigInvalid({ problems: all })
    const counts = countsOf(yield* Config.origins)
    yield* Console.log(`The settings are valid: ${counts === "" ? "all have their defaults" : counts}.`)
  })).pipe(
    Command.withDescription(
      "Check all settings without starting anything; prints every problem with its file and line, and exits with 1 if there is one"
    ),
    Command.withShortDescription("Check all settings, and print every problem"),
    Command.withExamples([
      { command: "PARLEY_CONFIG=/etc/parley/parley.env parley config check", description: "The settings of a service" }
    ])
  )

const show = Command.make("show", { json }, ({ json }) =>
  Effect.gen(function*() {
    yield* warn
    const config = yield* Config.load
    const origins = yield* Config.origins
    yield* print(json, Effect.succeed(effective(config, origins)), settingsShown)
  })).pipe(
    Command.withDescription(
      "Show every setting, with secrets redacted, and where it comes from; `admin config` asks the running server instead"
    ),
    Command.withShortDescription("Show every setting, and where it comes from"),
    Command.withExamples([{ command: "parley config show --json", description: "As JSON" }])
  )

/** `parley config`: the settings of the environment and of the settings file, without a server. */
export const config = Command.make("config").pipe(
  Command.withDescription(
    "Check or show the settings. They are environment variables, or lines NAME=value of the file that PARLEY_CONFIG names, which is .env in the current folder if PARLEY_CONFIG is not set. The environment takes precedence."
  ),
  Command.withShortDescription("Check or show the settings"),
  Command.withSubcommands([check, show]),
  Command.withExamples([{ command: "parley config check", description: "Before a start" }])
)
