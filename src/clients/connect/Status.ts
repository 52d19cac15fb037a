import { Clock, Effect, Option } from "effect"
import { createServer } from "node:http"
import { budgetFreeAt } from "./Budget.ts"
import { Journal } from "./Journal.ts"
import type { Settings } from "./Settings.ts"
import { nextStep, type Step, type Work } from "./Work.ts"

/** A conversation as `status` shows it. */
export interface ConversationStatus {
  readonly conversation: string
  readonly waiting: number
  /** The connector's present work, or the event that it waits for. */
  readonly state: string
  /** When the connector runs the next step; null if no step is planned. */
  readonly until: string | null
}

/** The state of one agent's connector, as `status` shows it. */
export interface Status {
  readonly handle: string
  readonly process: string | null
  readonly connected_since: string | null
  readonly stopped: string | null
  readonly paused: boolean
  readonly runs_today: number
  readonly conversations: ReadonlyArray<ConversationStatus>
}

const stateOf = (work: Work, step: Step): string => {
  if (work.phase === "running") return "running"
  if (work.phase === "replying") return "sending the reply"
  if (work.parked !== null) return `parked: ${work.parked}`
  if (step._tag === "Wait" && work.waiting.length > 0) return step.hold
  if (work.waiting.length > 0) return "about to run"
  return "acknowledging"
}

const timeOf = (step: Step): string | null =>
  step._tag === "Wait" && Number.isFinite(step.until) ? new Date(step.until).toISOString() : null

/** Reads the status from the journal. The connector may be running meanwhile. */
export const readStatus = Effect.fnUntraced(function*(settings: Settings, now: number) {
  const journal = yield* Journal
  const fact = (name: Parameters<typeof journal.fact>[0]) => Effect.map(journal.fact(name), Option.getOrNull)
  const starts = yield* journal.starts(now)
  const paused = (yield* fact("paused")) !== null
  const conversations: Array<ConversationStatus> = []
  for (const conversation of yield* journal.unfinished) {
    const work = yield* journal.work(conversation)
    if (work === undefined) continue
    const step = nextStep(work, { now, paused, budgetAt: budgetFreeAt(starts, conversation, settings, now) }, settings)
    conversations.push({
      conversation,
      waiting: work.waiting.length + work.batch.length,
      state: stateOf(work, step),
      until: timeOf(step)
    })
  }
  const status: Status = {
    handle: settings.handle,
    process: yield* fact("process"),
    connected_since: yield* fact("connected"),
    stopped: yield* fact("stopped"),
    paused,
    runs_today: starts.length,
    conversations
  }
  return status
})

/**
 * Serves the status as text on this port of 127.0.0.1 until the scope ends. Refuses requests whose Host is not this
 * machine, so that a web page cannot read the status by resolving its own host name to 127.0.0.1.
 */
export const serveStatus = Effect.fnUntraced(function*(settings: Settings, port: number) {
  const run = Effect.runPromiseWith(yield* Effect.context<Journal>())
  const text = Effect.flatMap(
    Clock.currentTimeMillis,
    (now) => Effect.map(readStatus(settings, now), (status) => `${showStatus(status, settings.runsPerDay)}\n`)
  )
  yield* Effect.acquireRelease(
    Effect.callback<ReturnType<typeof createServer>, Error>((resume) => {
      const server = createServer((request, response) => {
        if (request.headers.host !== `127.0.0.1:${port}` && request.headers.host !== `localhost:${port}`)
          return void response.writeHead(403).end()
        void run(text).then(
          (body) =>
            response.writeHead(200, { "content-type": "text/plain; charset=utf-8", "cache-control": "no-store" }).end(
              body
            ),
          () => response.writeHead(500).end()
        )
      })
      server.once("error", (error) => resume(Effect.fail(error)))
      server.listen(port, "127.0.0.1", () => resume(Effect.succeed(server)))
    }),
    (server) =>
      Effect.sync(() => {
        server.close()
        server.closeAllConnections()
      })
  )
})

/** The status as text. */
export const showStatus = (status: Status, runsPerDay: number): string => {
  const { connected_since, conversations, handle, paused, process, runs_today, stopped } = status
  const where = process === null
    ? "does not run"
    : connected_since === null
    ? `runs (process ${process}), not connected`
    : `connected since ${connected_since}`
  const rows = conversations.map(({ conversation, state, until, waiting }) =>
    `  ${conversation}  ${waiting} waiting  ${state}${until === null ? "" : ` until ${until}`}`
  )
  return [
    `@${handle} ${where}${paused ? ", paused" : ""}`,
    ...stopped === null ? [] : [`stopped: ${stopped}`],
    `${runs_today} of ${runsPerDay} runs in the last 24 hours`,
    ...rows
  ].join("\n")
}
