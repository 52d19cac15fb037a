import { Data, Effect, Option } from "effect"
import { plain } from "./TextTable.ts"

/** A call of the operators' API (wire.md O.1, and `CommandsApi`). */
export interface ApiCall {
  readonly method: "GET" | "POST" | "PUT" | "DELETE"
  /** The path below `/console/api`, with the query. */
  readonly path: string
  readonly body?: unknown
}

/** The response to a call, not decoded yet. */
export interface ApiResponse {
  readonly status: number
  readonly body: string
}

/** A command has failed or was refused. The message is for the operator. */
export class OperatorRefused extends Data.TaggedError("OperatorRefused")<{
  readonly message: string
  /** The code of the API's error, if the API refused the call. */
  readonly code?: string
}> {}

/** The error message if the command and the server have different versions. */
export const OTHER_VERSION = "The server has another version, so its answer cannot be read."

/** The request of a call, without the URL of the server. */
export const requestOf = ({ body, method, path }: ApiCall, headers: Readonly<Record<string, string>>) => ({
  method,
  path: `/console/api${path}`,
  headers: { "content-type": "application/json", ...headers },
  ...(body === undefined ? {} : { body: JSON.stringify(body) })
})

/**
 * Parses the body of a response. Fails with the API's error, or with the message `foreign` if the response is not from
 * the API.
 */
export const answerOf = ({ body, status }: ApiResponse, foreign: string): Effect.Effect<unknown, OperatorRefused> =>
  Effect.gen(function*() {
    const answer = yield* Effect.try({
      try: () => JSON.parse(body) as unknown,
      catch: () => new OperatorRefused({ message: foreign })
    })
    if (status < 400) return answer
    const { code, message } = Object(answer) as { readonly code?: unknown; readonly message?: unknown }
    return yield* new OperatorRefused({
      message: plain(String(message ?? `The server answered ${status}.`)),
      ...(typeof code === "string" ? { code } : {})
    })
  })

/** Makes a path with encoded parts. */
export const path = (strings: TemplateStringsArray, ...parts: ReadonlyArray<string>): string =>
  strings.map((text, i) => text + encodeURIComponent(parts[i] ?? "")).join("")

type Fields = Readonly<Record<string, Option.Option<string | number>>>

/** The fields that have a value, as an object. */
export const fieldsOf = (fields: Fields): Readonly<Record<string, string | number>> =>
  Object.fromEntries(
    Object.entries(fields).flatMap(([name, value]) => Option.isSome(value) ? [[name, value.value]] : [])
  )

/** A path with these fields as its query. */
export const withQuery = (path: string, fields: Fields): string => {
  const query = Object.entries(fieldsOf(fields)).map(([name, value]) => `${name}=${encodeURIComponent(value)}`)
  return query.length === 0 ? path : `${path}?${query.join("&")}`
}

export const get = (path: string): ApiCall => ({ method: "GET", path })
export const post = (path: string, body?: unknown): ApiCall => ({ method: "POST", path, body })
