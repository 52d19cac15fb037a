import { ValidationFailed } from "#infrastructure/wire/WireError"
import { Effect, Predicate } from "effect"
import { type Failure, isThrown } from "./Failure.ts"

/** A JSON object of an A2A request or response. */
export type Json = Readonly<Record<string, unknown>>

const snake = (name: string): string => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)

/**
 * A field by its JSON name, or by its name in the protocol's proto file. Both are valid ProtoJSON. Null counts as
 * absent.
 */
export const field = (object: Json, name: string): unknown => object[name] ?? object[snake(name)] ?? undefined

/** Reads a string; undefined if it is absent or empty. Throws ValidationFailed. */
export const textOf = (object: Json, name: string, at: string = name): string | undefined => {
  const value = field(object, name)
  if (value === undefined || value === "") return undefined
  if (typeof value !== "string") throw ValidationFailed.field(at, "must be a text")
  return value
}

/** Reads an integer in a range. Also accepts the digits of a query parameter. Throws ValidationFailed. */
export const intOf = (object: Json, name: string, min: number, max: number): number | undefined => {
  const value = field(object, name)
  if (value === undefined) return undefined
  const number = typeof value === "string" && /^-?\d{1,15}$/.test(value) ? Number(value) : value
  if (typeof number !== "number" || !Number.isInteger(number) || number < min || number > max) {
    throw ValidationFailed.field(
      name,
      max === Number.MAX_SAFE_INTEGER
        ? `must be a whole number from ${min} on`
        : `must be a whole number from ${min} to ${max}`
    )
  }
  return number
}

/** Reads a boolean; false if it is absent. Also accepts the text of a query parameter. Throws ValidationFailed. */
export const boolOf = (object: Json, name: string): boolean => {
  const value = field(object, name)
  if (value === undefined || value === false || value === "false") return false
  if (value === true || value === "true") return true
  throw ValidationFailed.field(name, "must be true or false")
}

/** Reads an object; undefined if it is absent. Throws ValidationFailed. */
export const objectOf = (object: Json, name: string, at: string = name): Json | undefined => {
  const value = field(object, name)
  if (value === undefined) return undefined
  if (!Predicate.isObject(value)) throw ValidationFailed.field(at, "must be an object")
  return value
}

/** Reads a list; empty if it is absent. Throws ValidationFailed. */
export const listOf = (object: Json, name: string): ReadonlyArray<unknown> => {
  const value = field(object, name)
  if (value === undefined) return []
  if (!Array.isArray(value)) throw ValidationFailed.field(name, "must be a list")
  return value
}

/**
 * Runs a function that reads fields. A refusal that `read` throws becomes a failure. Any other error becomes a defect.
 */
export const parsed = <A>(read: () => A): Effect.Effect<A, Failure> =>
  Effect.suspend(() => {
    try {
      return Effect.succeed(read())
    } catch (error) {
      return isThrown(error) ? Effect.fail(error) : Effect.die(error)
    }
  })

/** The largest page of a list. */
export const MAX_PAGE_SIZE = 100

/**
 * How many messages of a task's history the response may contain; undefined if the caller sets no limit. Throws
 * ValidationFailed.
 */
export const historyOf = (params: Json): number | undefined =>
  intOf(params, "historyLength", 0, Number.MAX_SAFE_INTEGER)

/** Reads the id in the params of a call; empty if it is absent. Throws ValidationFailed. */
export const idOf = (params: Json): string => textOf(params, "id") ?? ""

/** Reads the id of a push configuration's task; empty if it is absent. Throws ValidationFailed. */
export const taskIdOf = (params: Json): string => textOf(params, "taskId") ?? ""
