import type { Unavailable } from "#infrastructure/wire/WireError"
import { Context, Effect, Layer } from "effect"
import { IdempotencyRepo, type StoredAnswer } from "./IdempotencyRepo.ts"

/** How many rows one statement reads. */
const BATCH_ROWS = 1_000

/**
 * The fields of a response with texts about the agent whose `handle` is in the same object. `notes` are the caller's
 * notes about this agent.
 */
const TEXTS: ReadonlySet<string> = new Set(["display_name", "description", "avatar_url", "notes"])

/** Fields with JSON that agents wrote. The JSON belongs to a message, which must not change. */
const WRITTEN: ReadonlySet<string> = new Set(["content", "metadata"])

/** Sets each text about the agent in the value to null. Returns whether there was one. */
const clear = (value: unknown, handle: string): boolean => {
  if (typeof value !== "object" || value === null) return false
  const fields = value as Record<string, unknown>
  const isAbout = fields["handle"] === handle
  let cleared = false
  for (const name of Object.keys(fields)) {
    if (isAbout && TEXTS.has(name) && fields[name] !== null) {
      fields[name] = null
      cleared = true
    } else if (!WRITTEN.has(name) && clear(fields[name], handle)) cleared = true
  }
  return cleared
}

/** The bytes that every response of this server contains if it shows the agent. */
const mentionOf = (handle: string): Buffer => Buffer.from(`"handle":${JSON.stringify(handle)}`)

/**
 * Returns the response with null in place of each text about the agent, or `undefined` if the response contains no such
 * text.
 */
export const withoutTexts = (answer: StoredAnswer, handle: string): StoredAnswer | undefined => {
  if (answer.body === null || !answer.body.includes(mentionOf(handle))) return undefined
  const json: unknown = JSON.parse(answer.body.toString("utf8"))
  if (!clear(json, handle)) return undefined
  const body = Buffer.from(JSON.stringify(json))
  const { headers } = answer
  return {
    ...answer,
    body,
    headers: "content-length" in headers ? { ...headers, "content-length": String(body.length) } : headers
  }
}

/** The responses that are stored for repeated requests. */
export class StoredAnswers extends Context.Service<StoredAnswers, {
  /**
   * Removes the texts about an erased agent from the responses to other agents. The rows are kept, so that a repeated
   * request has no second effect. Reads all stored responses in slices, each with a statement of its own. Safe to
   * repeat.
   */
  readonly eraseTexts: (agentId: string, handle: string) => Effect.Effect<void, Unavailable>
}>()("parley/idempotency/StoredAnswers") {
  static readonly layer = Layer.effect(
    StoredAnswers,
    Effect.map(IdempotencyRepo, (repo) =>
      StoredAnswers.of({
        eraseTexts: Effect.fn("StoredAnswers.eraseTexts")(function*(agentId, handle) {
          for (let after = -1;;) {
            const last = yield* repo.slice(after, BATCH_ROWS)
            if (last === null) return
            for (const { answer, attempt } of yield* repo.mentioning(mentionOf(handle), after, last)) {
              const changed = attempt.agentId === agentId ? undefined : withoutTexts(answer, handle)
              if (changed !== undefined) yield* repo.finish(attempt, changed)
            }
            after = last
          }
        })
      }))
  )
}
