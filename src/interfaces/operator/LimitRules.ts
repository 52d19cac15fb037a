import { type Settings, settings } from "#infrastructure/platform/Config"
import type { LimitName } from "#infrastructure/rates/RateRule"
import { NotFound, ValidationFailed } from "#infrastructure/wire/WireError"
import { Result } from "effect"
import { Conflict } from "./Conflict.ts"

/** A stored change. Times are in milliseconds. */
export interface StoredChange {
  readonly name: string
  readonly agentId: string | null
  readonly handle: string | null
  readonly value: number
  readonly until: number | null
  readonly operator: string
  readonly at: number
  readonly reason: string | null
}

/** A limit with its value in force and its changes by operators. `default` is the configured value. */
export interface LimitState {
  readonly name: LimitName
  readonly about: string
  readonly per: "agent" | "address" | "group" | "server"
  readonly default: number
  readonly value: number
  readonly canChange: boolean
  readonly changes: ReadonlyArray<StoredChange>
}

/** The names of all limits. */
export const limitNames = Object.keys(settings).filter((name): name is LimitName => name.startsWith("LIMITS_"))

/** Matches the rates that count by IP address. They limit callers without a key, or with a key that may be stolen. */
const PER_ADDRESS = /ANONYMOUS|REGISTER|RECOVER|ROTATE/

const perOf = (name: string): LimitState["per"] =>
  PER_ADDRESS.test(name)
    ? "address"
    : /^LIMITS_GROUP_(?!INVITES)/.test(name)
    ? "group"
    : /BODY|OTP|AVATAR_(?!WRITES)/.test(name)
    ? "server"
    : "agent"

/** The limit of this name. */
export const limitNamed = (name: string): Result.Result<LimitName, NotFound> => {
  const known = limitNames.find((one) => one === name)
  return known === undefined ? Result.fail(new NotFound({ message: "No limit has this name." })) : Result.succeed(known)
}

/**
 * The state of a limit for an agent, or for all agents if `agentId` is null. Operators can change only the limits in
 * `changeable`.
 */
export const limitState = (
  name: LimitName,
  config: Settings,
  changeable: ReadonlySet<LimitName>,
  all: ReadonlyArray<StoredChange>,
  agentId: string | null
): LimitState => {
  const changes = all.filter((change) => change.name === name)
  const inForce = (agentId === null ? undefined : changes.find((change) => change.agentId === agentId)) ??
    changes.find((change) => change.agentId === null)
  return {
    name,
    about: settings[name].about,
    per: perOf(name),
    default: config[name],
    value: inForce?.value ?? config[name],
    canChange: changeable.has(name),
    changes
  }
}

/** Refuses a value that the limit cannot take while the servers run. */
export const checkValue = (
  name: LimitName,
  value: number,
  changeable: ReadonlySet<LimitName>
): Result.Result<void, Conflict | ValidationFailed> => {
  if (!changeable.has(name)) {
    return Result.fail(
      new Conflict({ message: `${name} is only read when a server starts: set it in the configuration, and restart.` })
    )
  }
  const parsed = settings[name].parse(String(value))
  return Result.isFailure(parsed) ? Result.fail(ValidationFailed.field("value", parsed.failure)) : Result.void
}

/**
 * Refuses a change for one agent if the limit does not count by agent. Also refuses a change that ends before `now`.
 */
export const checkScope = (
  name: LimitName,
  agentId: string | null,
  until: number | null,
  now: number
): Result.Result<void, ValidationFailed> =>
  agentId !== null && perOf(name) !== "agent"
    ? Result.fail(ValidationFailed.field("agent", `${name} does not count by agent: it can only be changed for all`))
    : until !== null && !(until > now)
    ? Result.fail(ValidationFailed.field("until", "must be a date-time in the future, or null"))
    : Result.void
