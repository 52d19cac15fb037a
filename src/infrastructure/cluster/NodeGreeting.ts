import { Data, Effect, Schema } from "effect"
import type { Socket } from "node:net"

/** Version of the protocol between nodes. It is increased whenever an older node would misunderstand a newer one. */
export const NODE_PROTOCOL_VERSION = 4

/**
 * The greeting: the first line of text, in JSON, that each side of a connection writes. The side that connected writes
 * first. The shape of a greeting never changes, so that nodes of different versions can refuse each other with a
 * readable reason.
 */
const Greeting = Schema.fromJsonString(Schema.Struct({
  parley: Schema.Int,
  /** RUNNER_HOST:RUNNER_PORT of the node that sends the greeting. */
  from: Schema.String,
  /** RUNNER_HOST:RUNNER_PORT of the node for which the greeting is meant. */
  to: Schema.String,
  /**
   * Identifies the process that sends the greeting. Of two processes with one address, the later process has the
   * greater number.
   */
  incarnation: Schema.Int,
  /** Why the node refuses the connection, written for operators. */
  refused: Schema.optionalKey(Schema.String)
}))
export type Greeting = typeof Greeting.Type

const decode = Schema.decodeUnknownOption(Greeting)

/** The other side of a connection wrote no greeting. */
export class NotGreeted extends Data.TaggedError("NotGreeted") {}

const MAX_BYTES = 4_096
const NEWLINE = 10

export const writeGreeting = (connection: Socket, greeting: Greeting): void =>
  void connection.write(`${JSON.stringify(greeting)}\n`)

/**
 * Reads the greeting of the other side, and pauses the connection. `rest` contains the bytes that came after the
 * greeting.
 */
export const readGreeting = (
  connection: Socket
): Effect.Effect<{ readonly greeting: Greeting; readonly rest: Buffer }, NotGreeted> =>
  Effect.callback((resume) => {
    let received = Buffer.alloc(0)
    const done = (result: Effect.Effect<{ readonly greeting: Greeting; readonly rest: Buffer }, NotGreeted>): void => {
      connection.off("data", read)
      connection.off("close", closed)
      connection.pause()
      resume(result)
    }
    const closed = (): void => done(Effect.fail(new NotGreeted()))
    const read = (chunk: Buffer): void => {
      received = Buffer.concat([received, chunk])
      const end = received.indexOf(NEWLINE)
      if (end < 0) return received.length > MAX_BYTES ? done(Effect.fail(new NotGreeted())) : undefined
      const greeting = decode(received.toString("utf8", 0, end))
      done(
        greeting._tag === "None"
          ? Effect.fail(new NotGreeted())
          : Effect.succeed({ greeting: greeting.value, rest: received.subarray(end + 1) })
      )
    }
    if (connection.destroyed) return closed()
    connection.on("data", read)
    connection.on("close", closed)
    connection.resume()
    return Effect.sync(() => {
      connection.off("data", read)
      connection.off("close", closed)
    })
  })
