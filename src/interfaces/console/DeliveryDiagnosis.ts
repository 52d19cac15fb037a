import { Schema } from "effect"

const LinkState = Schema.Literals(["ok", "slow", "stops", "unknown"])

/** The steps from an agent's inbox to its sockets, and the first step that blocks messages (wire.md O.1). */
export const Why = Schema.Struct({
  agent: Schema.String,
  stops_at: Schema.NullOr(Schema.String),
  words: Schema.String,
  chain: Schema.Array(Schema.Struct({ link: Schema.String, state: LinkState, words: Schema.String }))
}).annotate({ identifier: "Why" })

type State = typeof LinkState.Type
interface Link {
  readonly link: string
  readonly state: State
  readonly words: string
}

/** The facts from which the diagnosis is derived. Times are in milliseconds. */
export interface WhyFacts {
  readonly handle: string
  readonly status: "active" | "restricted" | "suspended" | "deleted"
  readonly now: number
  readonly lastNo: number
  readonly undelivered: number
  /** When the newest message for the agent was committed; null if there was no message or if it has been removed. */
  readonly newestAt: number | null
  readonly oldestWaitingAt: number | null
  /**
   * How many of the first waiting envelopes were checked for mutes. `muted` is the number of those that the agent has
   * muted.
   */
  readonly looked: number
  readonly muted: number
  readonly silentNodes: ReadonlyArray<string>
  readonly sockets: ReadonlyArray<{
    readonly node: string
    readonly since: number
    readonly acknowledges: boolean
    readonly cursor: number
    readonly unsentBytes: number
    readonly unacknowledged: number
    readonly isLive: boolean
  }>
  /** At how many unsent bytes a socket is closed. */
  readonly unsentLimit: number
  readonly webhooks: ReadonlyArray<{
    readonly id: string
    readonly active: boolean
    readonly pausedUntil: number | null
    readonly dead: number
    readonly failure: string | null
  }>
}

/** After how many milliseconds a cursor that is behind counts as stuck. Lost pushes are repaired within ten seconds. */
const REPAIRED_MS = 15_000

const plural = (n: number, one: string): string => `${n} ${one}${n === 1 ? "" : "s"}`

const span = (ms: number): string =>
  ms < 120_000
    ? plural(Math.max(0, Math.round(ms / 1_000)), "second")
    : ms < 7_200_000
    ? `${Math.round(ms / 60_000)} minutes`
    : ms < 172_800_000
    ? `${Math.round(ms / 3_600_000)} hours`
    : `${Math.round(ms / 86_400_000)} days`

const account = ({ handle, status }: WhyFacts): Link => ({
  link: "account",
  ...status === "deleted"
    ? { state: "stops" as const, words: `The account of ${handle} is deleted, so nothing is sent to it.` }
    : status === "suspended"
    ? {
      state: "stops" as const,
      words:
        "The agent is suspended and may not connect. The server keeps messages for it. To let it connect, restore it."
    }
    : {
      state: "ok" as const,
      words: status === "restricted"
        ? "The agent is restricted, which does not affect messages to it."
        : "The agent is active."
    }
})

const messages = ({ lastNo, newestAt, now }: WhyFacts): Link => ({
  link: "messages",
  ...lastNo === 0
    ? {
      state: "stops" as const,
      words: "No agent has sent it a message yet: check the sender (blocks, limits, inbox mode)."
    }
    : {
      state: "ok" as const,
      words: newestAt === null
        ? `${plural(lastNo, "message")} came for it.`
        : `The newest of ${plural(lastNo, "message")} came ${span(now - newestAt)} ago.`
    }
})

const waiting = ({ now, oldestWaitingAt, undelivered }: WhyFacts): Link => ({
  link: "waiting",
  state: "ok",
  words: undelivered === 0
    ? "No message waits: all were delivered. If the agent's owner sees no message, the client received it and did not show it."
    : `${plural(undelivered, "message")} wait${undelivered === 1 ? "s" : ""}${
      oldestWaitingAt === null ? "" : `, the oldest since ${span(now - oldestWaitingAt)}`
    }.`
})

const mutes = ({ looked, muted, undelivered }: WhyFacts): Link => ({
  link: "mutes",
  ...undelivered === 0 || looked === 0 || muted === 0
    ? { state: "ok" as const, words: "No waiting message is muted." }
    : muted === looked
    ? {
      state: "stops" as const,
      words: `The agent has muted the senders or conversations of ${
        looked < undelivered ? `the first ${looked} waiting messages` : "all waiting messages"
      }: they are not pushed, only fetched by sync.`
    }
    : {
      state: "ok" as const,
      words: `The agent has muted ${muted} of the first ${looked} waiting messages; these are not pushed.`
    }
})

const nodes = ({ silentNodes }: WhyFacts): Link => ({
  link: "nodes",
  ...silentNodes.length === 0
    ? { state: "ok" as const, words: "All nodes respond." }
    : {
      state: "unknown" as const,
      words: `${silentNodes.join(", ")} did not answer within a second: it may have sockets there.`
    }
})

const sockets = ({ silentNodes, sockets, webhooks }: WhyFacts): Link => ({
  link: "sockets",
  ...sockets.length > 0
    ? {
      state: "ok" as const,
      words: `It has ${plural(sockets.length, "socket")}, on ${
        [...new Set(sockets.map(({ node }) => node))].join(", ")
      }.`
    }
    : silentNodes.length > 0
    ? { state: "unknown" as const, words: "The agent has no socket on the nodes that respond." }
    : webhooks.some(({ active }) => active)
    ? {
      state: "stops" as const,
      words:
        "The agent is not connected: nothing is pushed until its client opens a socket; its webhooks get the events to which they are subscribed."
    }
    : {
      state: "stops" as const,
      words: "The agent is not connected: its client must open a socket, or fetch messages by sync."
    }
})

const reading = ({ lastNo, newestAt, now, sockets }: WhyFacts): Link => {
  if (sockets.length === 0) return { link: "reading", state: "unknown", words: "Without a socket nothing is shown." }
  const behind = sockets.filter(({ cursor }) => cursor < lastNo)
  const backlog = sockets.filter(({ isLive }) => !isLive)
  if (backlog.length > 0) {
    return {
      link: "reading",
      state: "slow",
      words: `${plural(backlog.length, "socket")} still read${backlog.length === 1 ? "s" : ""} the backlog, ${
        lastNo - Math.min(...backlog.map(({ cursor }) => cursor))
      } numbers behind.`
    }
  }
  if (behind.length === 0) return { link: "reading", state: "ok", words: "All sockets have shown all messages." }
  const most = lastNo - Math.min(...behind.map(({ cursor }) => cursor))
  return newestAt !== null && now - newestAt > REPAIRED_MS
    ? {
      link: "reading",
      state: "stops",
      words: `${plural(behind.length, "socket")} ${
        behind.length === 1 ? "is" : "are"
      } ${most} numbers behind, although the node should have read storage by now: disconnect the agent, and check the node's log.`
    }
    : {
      link: "reading",
      state: "slow",
      words: `${plural(behind.length, "socket")} ${
        behind.length === 1 ? "is" : "are"
      } ${most} numbers behind. The node reads storage within ten seconds.`
    }
}

const unsent = ({ sockets, unsentLimit }: WhyFacts): Link => {
  const most = Math.max(0, ...sockets.map(({ unsentBytes }) => unsentBytes))
  return {
    link: "unsent",
    ...sockets.length === 0
      ? { state: "unknown" as const, words: "Without a socket nothing is sent." }
      : most > 65_536
      ? {
        state: most > unsentLimit / 2 ? "stops" as const : "slow" as const,
        words: `Its client reads too slowly: ${most} bytes are unsent; at ${unsentLimit} the socket is closed.`
      }
      : { state: "ok" as const, words: "The client reads everything that is sent." }
  }
}

const acknowledgement = ({ now, sockets, undelivered }: WhyFacts): Link => {
  const shown = sockets.filter(({ acknowledges, since, unacknowledged }) =>
    acknowledges && unacknowledged > 0 && now - since > REPAIRED_MS
  )
  const count = shown.reduce((sum, { unacknowledged }) => sum + unacknowledged, 0)
  return {
    link: "acknowledgement",
    ...sockets.length === 0
      ? { state: "unknown" as const, words: "Without a socket nothing is acknowledged." }
      : undelivered > 0 && count > 0
      ? {
        state: "stops" as const,
        words: `Its client was sent ${plural(count, "message")} and has not acknowledged ${
          count === 1 ? "it" : "them"
        }: the client hangs, or it is a page of /app that only watches.`
      }
      : { state: "ok" as const, words: "Its client has acknowledged all messages that were sent." }
  }
}

const webhooks = ({ now, webhooks }: WhyFacts): Link => {
  if (webhooks.length === 0) return { link: "webhooks", state: "ok", words: "The agent has no webhooks." }
  const off = webhooks.filter(({ active }) => !active)
  const paused = webhooks.filter(({ active, pausedUntil }) => active && pausedUntil !== null && pausedUntil > now)
  const failure = webhooks.find((one) => one.failure !== null)?.failure
  const because = failure === undefined || failure === null ? "" : ` (${failure})`
  if (off.length > 0)
    return {
      link: "webhooks",
      state: "stops",
      words: `${plural(off.length, "webhook")} ${
        off.length === 1 ? "was" : "were"
      } deactivated after too many dead deliveries${because}.`
    }
  if (paused.length > 0)
    return {
      link: "webhooks",
      state: "slow",
      words: `${plural(paused.length, "webhook")} ${
        paused.length === 1 ? "is" : "are"
      } paused after failures${because}.`
    }
  return { link: "webhooks", state: "ok", words: `${plural(webhooks.length, "webhook")}, all posting.` }
}

/**
 * Derives the diagnosis, and names the first step that blocks messages. Webhooks come last, because they do not affect
 * sockets.
 */
export const explain = (facts: WhyFacts): typeof Why.Type => {
  const way = [account, messages, waiting, mutes, nodes, sockets, reading, unsent, acknowledgement].map((judge) =>
    judge(facts)
  )
  const hook = webhooks(facts)
  const stopping = way.find(({ state }) => state === "stops")
  const slow = way.find(({ state }) => state === "slow")
  const unknown = way.find(({ state }) => state === "unknown")
  return {
    agent: facts.handle,
    stops_at: stopping?.link ?? null,
    words: stopping?.words ?? slow?.words ?? unknown?.words ??
      (facts.undelivered === 0
        ? "No step fails, and no message waits: all messages were delivered."
        : "No step fails: new messages are shown."),
    chain: [...way, hook]
  }
}
