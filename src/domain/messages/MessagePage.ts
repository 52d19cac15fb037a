import { Effect } from "effect"
import { HttpServerResponse } from "effect/http"

/** How many bytes of JSON one tick of the event loop encodes. */
const SLICE_BYTES = 262_144
/** How many UTF-8 bytes one UTF-16 code unit can need at most. */
const BYTES_PER_UNIT = 3

const waiting: Array<() => void> = []
/**
 * Resumes the fiber that has waited longest. While fibers wait, `next` is scheduled exactly once. It schedules itself
 * before it resumes the fiber, because the fiber may wait again immediately.
 */
const next = (): void => {
  const first = waiting.shift()
  if (waiting.length > 0) setImmediate(next)
  first?.()
}

/**
 * Completes in a later tick of the event loop. Each tick resumes one of the waiting fibers, in the order of arrival.
 */
export const turn: Effect.Effect<void> = Effect.callback((resume) => {
  if (waiting.length === 0) setImmediate(next)
  waiting.push(() => resume(Effect.void))
})

/**
 * Responds with an array of messages, given as JSON texts. A large array is encoded in slices. Each tick of the event
 * loop encodes one slice, of one of the requests, so that several large responses at the same time do not delay the
 * small ones.
 */
export const messagePage = (rows: ReadonlyArray<string>): Effect.Effect<HttpServerResponse.HttpServerResponse> => {
  let units = 1
  for (const row of rows) units += row.length + 1
  if (units <= SLICE_BYTES)
    return Effect.succeed(HttpServerResponse.text(`[${rows.join(",")}]`, { contentType: "application/json" }))
  return Effect.gen(function*() {
    let bytes = Buffer.allocUnsafe(units + SLICE_BYTES)
    let end = 0
    let encoded = 0
    for (const [i, row] of rows.entries()) {
      // Most texts have one byte for each code unit, so the buffer rarely grows.
      const most = row.length * BYTES_PER_UNIT + 2
      if (end + most > bytes.length && end + Buffer.byteLength(row) + 2 > bytes.length) {
        bytes = Buffer.concat([bytes.subarray(0, end)], 2 * bytes.length + most)
      }
      end += bytes.write(i === 0 ? "[" : ",", end)
      end += bytes.write(row, end)
      if (end - encoded < SLICE_BYTES) continue
      encoded = end
      yield* turn
    }
    end += bytes.write("]", end)
    return HttpServerResponse.uint8Array(bytes.subarray(0, end), { contentType: "application/json" })
  })
}
