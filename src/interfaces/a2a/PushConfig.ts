import type { TaskTarget } from "#domain/webhooks/TaskTarget"
import { ValidationFailed, WireError } from "#infrastructure/wire/WireError"
import { field, type Json, objectOf, textOf } from "./Fields.ts"

/** A push notification configuration, as the caller gave it. */
export interface PushConfig {
  /** Unique within the task. */
  readonly name: string
  readonly target: TaskTarget
}

export class TooManyPushConfigs extends WireError<TooManyPushConfigs>()("TooManyPushConfigs", {
  code: "LIMIT_REACHED",
  status: 400,
  message: "The task has reached the limit on push notification configurations: delete one first."
}) {}

export class TooManyPushConfigsOfAgent extends WireError<TooManyPushConfigsOfAgent>()("TooManyPushConfigsOfAgent", {
  code: "LIMIT_REACHED",
  status: 400,
  message:
    "You have as many push notification configurations as an agent may have: delete one, or wait until a task of yours has ended."
}) {}

const MAX_URL = 2_048
/** A valid header value: visible ASCII characters, with spaces only between them. */
const HEADER = /^[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?$/
const SCHEME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}$/
const NAME = /^[A-Za-z0-9._~-]{1,128}$/

const headerOf = (object: Json, name: string, at: string, max: number): string | undefined => {
  const text = textOf(object, name, at)
  if (text !== undefined && (text.length > max || !HEADER.test(text))) {
    throw ValidationFailed.field(at, `must be visible ASCII, at most ${max} characters`)
  }
  return text
}

/**
 * Reads a TaskPushNotificationConfig. `taskId` is undefined for a new task. `fallback` is used if the config has no id.
 * Throws ValidationFailed.
 */
export const pushConfigOf = (given: Json, taskId: string | undefined, fallback: string): PushConfig => {
  const url = textOf(given, "url")
  if (url === undefined || url.length > MAX_URL)
    throw ValidationFailed.field("url", `is required, with at most ${MAX_URL} characters`)
  const named = textOf(given, "taskId")
  if (named !== undefined && named !== taskId)
    throw ValidationFailed.field("taskId", "must be the id of the task, or absent")
  const name = textOf(given, "id") ?? fallback
  if (!NAME.test(name)) throw ValidationFailed.field("id", "must be 1 to 128 of the letters, digits and . _ ~ -")
  const token = headerOf(given, "token", "token", 1_024)
  const info = field(given, "authentication") === undefined ? undefined : objectOf(given, "authentication")
  const scheme = info === undefined ? undefined : textOf(info, "scheme", "authentication.scheme")
  if (info !== undefined && (scheme === undefined || !SCHEME.test(scheme))) {
    throw ValidationFailed.field("authentication.scheme", "must name a scheme of HTTP, such as Bearer")
  }
  const credentials = info === undefined
    ? undefined
    : headerOf(info, "credentials", "authentication.credentials", 4_096)
  return {
    name,
    target: {
      url,
      ...(token === undefined ? {} : { token }),
      ...(scheme === undefined ? {} : { authentication: { scheme, credentials: credentials ?? "" } })
    }
  }
}

/** A configuration in the form of A2A. */
export const shownPushConfig = (
  taskId: string,
  { name, target: { authentication, token, url } }: PushConfig
): object => ({
  id: name,
  taskId,
  url,
  ...(token === undefined ? {} : { token }),
  ...(authentication === undefined ? {} : { authentication })
})
