import { Cause, Clock, Context, Duration, Effect, Layer } from "effect"
import type { RunnerAddress } from "effect/cluster"
import type { Socket as NetSocket } from "node:net"
import { monotonicMillis } from "../platform/MonotonicClock.ts"
import { type LineEvents, NodeLine, type Topic } from "./NodeLine.ts"
import { NodeLinks } from "./NodeLinks.ts"

/** How long a question may be without a reply before its line is given up. */
export const SILENCE = Duration.seconds(3)
/** How often that is looked at, and after how much quiet a line asks for a sign of life; nodes end connections after ten seconds. */
const CHECK = "500 millis"
const QUIET_MS = 4_000

/** What a node does with the texts of others, by topic. */
export type Hearing = (line: NodeLine, text: string) => void | Promise<string>

/**
 * The lines between nodes that texts and calls go over, on the same port as effect's RPC and below it: a call costs a
 * third there of what it costs through RPC (docs/decisions.md). Greetings, effect's cluster and procedures of nodes stay
 * with RPC.
 */
export class NodeLines extends Context.Service<NodeLines, {
  /** What is done with texts on a topic that come over lines which other nodes have opened. */
  readonly hear: (topic: Topic, hearing: Hearing) => void
  /**
   * Opens a line; what is said before it is connected waits. It ends itself when a question has had no reply for three
   * seconds. `hear`: the texts that the other side says on it.
   */
  readonly open: (address: RunnerAddress.RunnerAddress, events: LineEvents) => NodeLine
  /** Takes a connection that another node has opened, with the bytes that followed the preface. */
  readonly accept: (connection: NetSocket, first: Buffer) => void
}>()("parley/cluster/NodeLines") {
  static readonly layer = Layer.effect(
    NodeLines,
    Effect.gen(function*() {
      const links = yield* NodeLinks
      const now = monotonicMillis(yield* Clock.Clock)
      const fork = Effect.runForkWith(yield* Effect.context<never>())
      const hearings = new Map<Topic, Hearing>()
      const lines = new Set<NodeLine>()
      yield* Effect.addFinalizer(() =>
        Effect.sync(() => {
          for (const line of lines) line.end("closed")
        }))

      const kept = (events: LineEvents): NodeLine => {
        const line = new NodeLine({
          ...events,
          ended: (end, cause) => {
            lines.delete(line)
            events.ended(end, cause)
          }
        }, now)
        lines.add(line)
        return line
      }

      return NodeLines.of({
        hear: (topic, hearing) => hearings.set(topic, hearing),
        accept: (connection, first) =>
          kept({
            hear: (line, topic, text) => {
              const hearing = hearings.get(topic)
              if (hearing === undefined) throw new Error(`nothing is heard about ${topic}`)
              return hearing(line, text)
            },
            ended: (end, cause) => {
              if (end === "answer") fork(Effect.logWarning("A node said what this node does not understand: do both run the same version of Parley?", cause))
            }
          }).attach(connection, first),
        open: (address, events) => {
          const watching: { current?: { readonly interruptUnsafe: () => void } } = {}
          const line = kept({
            ...events,
            ended: (end, cause) => {
              events.ended(end, cause)
              watching.current?.interruptUnsafe()
            }
          })
          const check = Effect.sync(() => line.check(Duration.toMillis(SILENCE), QUIET_MS))
          const dialled = Effect.matchCause(links.dial(address), {
            onFailure: (cause) => line.end("connection", Cause.squash(cause)),
            onSuccess: (connection) => line.begin(connection)
          })
          const watch = Effect.forever(Effect.andThen(Effect.sleep(CHECK), check))
          watching.current = fork(Effect.raceFirst(Effect.andThen(dialled, Effect.never), watch))
          return line
        }
      })
    })
  )
}

