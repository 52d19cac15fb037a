import { Effect } from "effect"
import { HttpServerResponse } from "effect/http"

/** Bytes of JSON that are encoded in one turn of the event loop. */
const SLICE_BYTES = 262_144
/** The most UTF-8 bytes that one UTF-16 code unit can need. */
const BYTES_PER_UNIT = 3

const waiting: Array<() => void> = []
/**
 * Resumes the fiber that waits longest. `next` is scheduled once while fibers wait. It schedules itself before it
 * resumes the fiber, because the fiber may wait again at once.
 */
const next = (): void => {
  const first = waiting.shift()
  if (waiting.length > 0) setImmediate(next)
  first?.()
}

/**
 * Completes in a later turn of the event loop. Each turn completes one of the fibers that wait, in the order of their
 * arrival.
 */
export const turn: Effect.Effect<void> = Effect.callback((resume) => {
  if (waiting.length === 0) setImmediate(next)
  waiting.push(() => resume(Effect.void))
})

/**
 * Responds with an array of messages, given as JSON texts. A large array is encoded in slices. Each turn of the event
 * loop encodes one slice over all requests, so that several large answers at once do not delay the small ones.
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
      // Most texts have one byte for each unit, so the buffer rarely grows.
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
