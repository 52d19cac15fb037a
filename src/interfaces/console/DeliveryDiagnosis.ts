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
      words: "It is suspended and may not connect. Messages are kept for it. To let it connect, restore it."
    }
    : {
      state: "ok" as const,
      words: status === "restricted" ? "It is restricted, which does not affect messages to it." : "It is active."
    }
})

const messages = ({ lastNo, newestAt, now }: WhyFacts): Link => ({
  link: "messages",
  ...lastNo === 0
    ? {
      state: "stops" as const,
      words: "Nobody has sent it a message yet: check the sender (blocks, limits, inbox mode)."
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
    ? "Nothing waits: all messages were delivered. If its owner sees no message, its client got it and did not show it."
    : `${plural(undelivered, "message")} wait${undelivered === 1 ? "s" : ""}${
      oldestWaitingAt === null ? "" : `, the oldest since ${span(now - oldestWaitingAt)}`
    }.`
})

const mutes = ({ looked, muted, undelivered }: WhyFacts): Link => ({
  link: "mutes",
  ...undelivered === 0 || looked === 0 || muted === 0
    ? { state: "ok" as const, words: "Nothing that waits is muted." }
    : muted === looked
    ? {
      state: "stops" as const,
      words: `It has muted the senders or conversations of ${
        looked < undelivered ? `the first ${looked} messages that wait` : "all that waits"
      }: they are not pushed, only fetched by sync.`
    }
    : { state: "ok" as const, words: `It has muted ${muted} of the first ${looked} that wait; those are not pushed.` }
})

const nodes = ({ silentNodes }: WhyFacts): Link => ({
  link: "nodes",
  ...silentNodes.length === 0
    ? { state: "ok" as const, words: "All nodes answer." }
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
    ? { state: "unknown" as const, words: "It has no socket on the nodes that answer." }
    : webhooks.some(({ active }) => active)
    ? {
      state: "stops" as const,
      words:
        "It is not connected: nothing is pushed until its client opens a socket; its webhooks get what they are subscribed to."
    }
    : { state: "stops" as const, words: "It is not connected: its client has to open a socket, or to fetch by sync." }
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
  if (behind.length === 0) return { link: "reading", state: "ok", words: "All sockets have been shown everything." }
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
      : { state: "ok" as const, words: "Its client reads what is sent." }
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
  if (webhooks.length === 0) return { link: "webhooks", state: "ok", words: "It has none." }
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
        ? "Nothing stops, and nothing waits: all messages were delivered."
        : "Nothing stops: new messages are shown."),
    chain: [...way, hook]
  }
}
