import { setTimeout as pause } from "node:timers/promises"
import { check, type Limits } from "./Checker.ts"
import { contentionOf, type Fault, type Scene } from "./Fault.ts"
import { NEVER, type Operation, Outcome, type Tick, TICKS_PER_MS } from "./History.ts"
import { isAsFast, type Latency, latencyOfSends, shown as shownLatency } from "./Latency.ts"
import { Load, LOAD_LIMITS, type LoadAgent } from "./Load.ts"
import { outageOf } from "./Outage.ts"
import { readFinal } from "./ReadFinal.ts"
import type { Rule } from "./Rule.ts"
import { COLD_CAP, type Site } from "./Site.ts"

/** Agents of one round. The load needs at least 24, and more than twice the cold cap. */
export const AGENTS = 48

const WARM_UP_MS = 2_000
/** Milliseconds for which the load goes on once everything is healed. */
const COOL_DOWN_MS = 3_000
/**
 * Seconds that nodes may wait for a processor per second that they run. Above this, the machine is too busy to check
 * latencies.
 */
const MAX_CONTENTION = 1.5
/** A median latency that a busy machine cannot explain. */
const MAX_LATENCY_MS = 20_000
/** Lines of each kind of violation that are printed. */
const SHOWN = 5

export interface RoundOptions {
  readonly site: Site
  readonly fault: Fault
  readonly agents: ReadonlyArray<LoadAgent>
  readonly seed: number
  readonly random: () => number
  /** Seconds that the fault lasts, unless it needs longer. */
  readonly seconds: number
  /** The target rate in sends per second. */
  readonly rate: number
  /** The fault lasts at least until this many sends are accepted. */
  readonly sends: number
  readonly say: (text: string) => void
}

/** A row of the table. */
export interface RoundResult {
  readonly fault: string
  readonly accepted: number
  /** Seconds for which the load sent. */
  readonly seconds: number
  readonly lost: number
  readonly duplicated: number
  readonly reordered: number
  /** Violations of all other rules. */
  readonly other: number
  /** The longest time in seconds for which a conversation accepted no sends. */
  readonly outageSeconds: number
  /** Conversations that accepted no sends for longer than a second. */
  readonly affected: number
  /** Latency of accepted sends in the seconds before the fault. */
  readonly before: Latency
  /** Latency of accepted sends during the fault. */
  readonly during: Latency
  /** Sends that failed after all retries of the client. */
  readonly failed: number
  /** Seconds from the end of the fault until every node was ready. */
  readonly readySeconds: number
  /** All problems, as texts. */
  readonly problems: ReadonlyArray<string>
}

/**
 * Runs the load, causes and heals the fault in the middle, ends the load, and checks everything that was requested,
 * answered and shown.
 */
export const playRound = async (options: RoundOptions): Promise<RoundResult> => {
  const { fault, say, site } = options
  const problems: Array<string> = []
  const problem = (what: string) => {
    say(`  PROBLEM ${what}`)
    problems.push(what)
  }
  const settings = fault.settings ?? {}
  await site.set(settings, fault.openFiles)
  for (const node of site.nodes) node.unready.clear()
  let isHealed = false
  const silenced = fault.silences?.(site)
  const load = await Load.start({
    agents: options.agents,
    urls: () => site.targets.map(({ url }) => url),
    isSilent: (url) => silenced !== undefined && !isHealed && (url === undefined || url === silenced.url),
    clientUrl: () => site.url,
    database: site.database,
    seed: options.seed,
    rate: Math.min(options.rate, fault.rate ?? Infinity)
  })
  try {
    const { history } = load
    const began = performance.now()
    await fault.prepare?.(site)
    const calm = history.now()
    await pause(WARM_UP_MS)

    const seconds = Math.max(options.seconds, fault.atLeast ?? 0)
    const span = { name: fault.name, from: history.now(), until: NEVER, healed: NEVER }
    history.faults.push(span)
    const scene: Scene = {
      site,
      random: options.random,
      until: performance.now() + seconds * 1_000,
      problem,
      say: (what) => say(`  ${what}`),
      stats: () => load.stats,
      load
    }
    const sent = load.stats.accepted
    const contention = contentionOf(site.nodes)
    await fault.inject(scene)
    await (fault.during?.(scene) ?? pause(Math.max(0, scene.until - performance.now())))
    say(`  ${load.stats.accepted - sent} sends accepted while it lasted`)
    span.until = history.now()
    const contended = contention()
    await fault.heal(scene)
    const readySeconds = await untilWell(site, problem)
    span.healed = history.now()
    isHealed = true
    load.rate = options.rate
    await pause(COOL_DOWN_MS)
    while (load.stats.accepted < options.sends) await pause(100)
    const took = (performance.now() - began) / 1_000
    const stopped = history.now()
    await load.stop()
    const { accepted, failed, refused, retried, starved } = load.stats
    const outage = outageOf(history, span.from, stopped)
    const before = latencyOfSends(history, calm, span.from)
    const during = latencyOfSends(history, span.from, span.until)
    if (outage.worst !== undefined) {
      const { conversation, from } = outage.worst
      say(
        `  taken again after ${outage.seconds.toFixed(1)} s: ${
          history.conversations[conversation]?.id
        } had nothing taken from ${clock(history.began, from)} on`
      )
    }
    await load.settle()
    say(
      `  quiet; failed ${JSON.stringify(failed)}, retried ${JSON.stringify(retried)}, refused ${
        JSON.stringify(refused)
      }, starved ${starved}`
    )
    const answered = (is: (operation: Operation) => boolean) =>
      load.history.operations.filter((one) => one.outcome === Outcome.Ok && is(one)).length
    say(
      `  ${answered(({ kind }) => kind === "react")} reactions, ${
        answered(({ kind }) => kind === "unreact")
      } taken back; ${answered(({ state }) => state !== undefined)} outcomes, ${
        load.history.operations.filter(({ code }) => code === "OUTCOME_FINAL").length
      } refused after the final one`
    )

    for (const [why, count] of Object.entries({ ...retried, ...failed })) {
      if (/^(?:client: )?500\b/.test(why)) problem(`${count} requests were answered with ${why}`)
    }
    for (const node of site.nodes) {
      if (node.unready.size > 0)
        say(`  ${node.name} was not ready: ${JSON.stringify(Object.fromEntries(node.unready))}`)
      for (const end of node.endedByItself.splice(0)) problem(end)
    }
    const final = await readFinal({ history, database: site.database, url: site.node(0).url, keys: load.keys })
    const { found, violations } = check(history, final, {
      coldCap: COLD_CAP,
      limits: limitsOf({ ...LOAD_LIMITS, ...settings }, site)
    })
    const shown = new Map<Rule, number>()
    for (const { line, rule } of violations) {
      const already = shown.get(rule) ?? 0
      shown.set(rule, already + 1)
      if (already < SHOWN) problem(`${rule}: ${line}`)
    }
    for (const oddity of history.oddities.slice(0, SHOWN)) problem(oddity)
    const gaveUp = Object.values(failed).reduce((sum, count) => sum + count, 0)
    if (fault.failsNoSend === true && gaveUp > 0) problem(`${gaveUp} sends failed in spite of all retries`)
    if (outage.seconds > (fault.resumesWithin ?? Infinity)) {
      problem(
        `a conversation took no messages for ${outage.seconds.toFixed(1)} s; at most ${fault.resumesWithin} are allowed`
      )
    }
    if (fault.keepsSpeed === true) {
      const times = `sends took ${shownLatency(during)} ms, and ${shownLatency(before)} ms before (median and p95)`
      say(`  ${times}; for each second that the nodes ran they waited ${contended.toFixed(1)} s for a processor`)
      if (!isAsFast(before, during) && !(contended > MAX_CONTENTION && during.median < MAX_LATENCY_MS)) problem(times)
    }
    if (fault.keepsReady === true) {
      for (const { name, unready } of site.nodes)
        if (unready.size > 0) problem(`${name} was not ready: ${[...unready.keys()].join(" ")}`)
    }
    if (outage.seconds === Infinity) problem("a conversation never took messages again")
    const { duplicated = 0, lost = 0, reordered = 0, ...others } = found
    return {
      fault: fault.name,
      accepted,
      seconds: took,
      lost,
      duplicated,
      reordered,
      other: Object.values(others).reduce((sum, count) => sum + count, 0),
      outageSeconds: outage.seconds,
      affected: outage.affected,
      before,
      during,
      failed: gaveUp,
      readySeconds,
      problems
    }
  } finally {
    load.close()
  }
}

/** The limits of nodes with these settings. */
const limitsOf = (env: Readonly<Record<string, string>>, { nodes }: Site): Limits => ({
  sends: Number(env["LIMITS_SENDS_PER_SECOND"] ?? 60),
  registrations: Number(env["LIMITS_REGISTER_PER_HOUR"] ?? 5),
  codes: Number(env["LIMITS_REGISTER_VERIFY_PER_10_MINUTES"] ?? 10),
  nodes: nodes.length
})

/** A moment of a history as the time of day, in the form of the nodes' logs. */
const clock = (began: number, at: Tick): string =>
  new Date(performance.timeOrigin + began + at / TICKS_PER_MS).toISOString().slice(11, 23)

/**
 * Waits until every node is ready. A node that does not become ready is reported as a problem and restarted for the
 * next round.
 */
const untilWell = async (site: Site, problem: (what: string) => void): Promise<number> => {
  const began = performance.now()
  for (const node of site.nodes) {
    await site.untilReady([node]).catch(async (error: unknown) => {
      problem(error instanceof Error ? error.message : String(error))
      await node.kill()
      await node.start()
      await site.untilReady([node])
    })
  }
  return (performance.now() - began) / 1_000
}
