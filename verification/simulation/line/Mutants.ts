import type { NodeCalls } from "#infrastructure/cluster/NodeCalls"
import { PeerConnection } from "#infrastructure/cluster/PeerConnection"
import type { PeerConnections } from "#infrastructure/cluster/PeerConnections"
import { SocketSession } from "#interfaces/realtime/SocketSession"
import { Effect } from "effect"
import type { Mutant } from "./World.ts"

/** The private members of a line that mutants change. */
interface Taking {
  taken: number
  take: (number: number, acknowledged: number, bytes: Buffer, from: number, to: number) => void
}

const patchTake = (change: (line: Taking, number: number) => void) => () => {
  const prototype = PeerConnection.prototype as unknown as Taking
  const { take } = prototype
  prototype.take = function(number, ...rest) {
    change(this, number)
    return take.call(this, number, ...rest)
  }
  return () => {
    prototype.take = take
  }
}

type Hear = Parameters<PeerConnections["Service"]["handle"]>[1]

/** Changes how the receiving node handles entries of one topic. */
const hearing = (topic: string, change: (handler: Hear) => Hear): Mutant => ({
  lines: (lines) => ({
    ...lines,
    handle: (each, handler) => lines.handle(each, each === topic ? change(handler) : handler)
  })
})

const calling = (change: (call: NodeCalls["Service"]["call"]) => NodeCalls["Service"]["call"]): Mutant => ({
  calls: (calls) => ({ ...calls, call: change(calls.call) })
})

/** Mistakes in the communication between nodes, or in code that relies on it. The simulation must find each of them. */
export const mutants: Readonly<Record<string, Mutant>> = {
  "a send is answered before its commit": { database: { answersEarly: true } },
  "a `missed` is lost": hearing("missed", () => () => {}),
  "an answer comes before its echo": {
    publish: (publish, time) => (stored) => void time.after(3, () => publish(stored))
  },
  "an echo comes before the inbox that it follows": {
    hears: (push) => push._tag === "Echo" ? { ...push, after: 0 } : push
  },
  "two owners write in one epoch": { database: { fences: false } },
  "a node that does not own the shard executes a call": { servesAll: true },
  "a frame that was doubled is taken twice": {
    patch: patchTake((line, number) => {
      if (number === line.taken) line.taken--
    })
  },
  "a frame that was lost is not missed": {
    patch: patchTake((line, number) => {
      if (number > line.taken) line.taken = number - 1
    })
  },
  "an announcement is lost when a line begins again": {
    lines: (lines) => {
      const met = new Set<string>()
      const again = new WeakSet<PeerConnection>()
      lines.watch({
        began: (line) => {
          if (met.has(line.node)) again.add(line)
          met.add(line.node)
        },
        ended: () => {}
      })
      return {
        ...lines,
        handle: (topic, handler) =>
          lines.handle(
            topic,
            topic !== "sockets" ? handler : (line, entry) => {
              if (!again.delete(line)) handler(line, entry)
            }
          )
      }
    }
  },
  'a call is executed and answered with "absent"': {
    calls: (calls) => {
      let executed = 0
      return {
        ...calls,
        serve: (procedure, handler) =>
          calls.serve(procedure, (target, payload) => {
            const answer = handler(target, payload)
            return answer === undefined || ++executed % 5 > 0
              ? answer
              : Effect.as(answer, { ending: "absent" as const, value: null })
          })
      }
    }
  },
  "a call that was lost counts as unsent": calling((call) => (...args) =>
    Effect.map(call(...args), (answer) => answer === "lost" ? "unsent" : answer)
  ),
  "a socket that is reading its inbox is not compared with storage": {
    patch: () => {
      const { check } = SocketSession.prototype
      SocketSession.prototype.check = function(head) {
        if (!this.isCatchingUp) check.call(this, head)
      }
      return () => {
        SocketSession.prototype.check = check
      }
    }
  }
}
