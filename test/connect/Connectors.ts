import { connect } from "#clients/connect/Connector"
import { Journal } from "#clients/connect/Journal"
import { ParleyApi } from "#clients/connect/ParleyApi"
import { ParleySocket } from "#clients/connect/ParleySocket"
import { adapterOf } from "#clients/connect/programs/Adapters"
import { Runs } from "#clients/connect/programs/Runs"
import { RunLog } from "#clients/connect/RunLog"
import { DEFAULTS, type Settings } from "#clients/connect/Settings"
import { Console, Effect, Fiber, Layer } from "effect"
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { eventually } from "../support/Eventually.ts"
import { newAgent, type Server, type TestAgent } from "../support/Server.ts"

/**
 * A shell command that calls one of Parley's tools, as a program with `"reply": "tools"` can, and prints the result. It
 * calls again while the server cannot be reached or refuses what it has no time for.
 */
export const toolCall = (name: string, args: object): string => {
  const call = JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/call", params: { name, arguments: args } })
  const headers = "-H 'content-type: application/json' -H 'accept: application/json, text/event-stream'"
  const once = `curl -s "$PARLEY_TOOLS_URL" -H "authorization: Bearer $PARLEY_TOOLS_TOKEN" ${headers} -d '${call}'`
  const busy = "*UNAVAILABLE*"
  return `for try in 1 2 3 4 5 6 7 8; do answer=$(${once}); case "$answer" in ${busy}) sleep 1;; *) break;; esac; done; printf %s "$answer"`
}

/** Everything of one connector on disk: its journal, HOME and working directories, and what its fake program noted. */
export class Machine {
  readonly root = mkdtempSync(join(tmpdir(), "parley-connect-"))
  readonly program = join(this.root, "answer")
  readonly notes = join(this.root, "notes")

  /** `script` is the rest of a shell script, after the prompt was read into `$prompt`. Each run is noted first. */
  constructor(script = "echo Answered.") {
    writeFileSync(this.program, `#!/bin/sh\nprompt=$(cat)\necho "run $1" >> ${this.notes}\n${script}\n`)
    chmodSync(this.program, 0o700)
  }

  /** How many runs there were. */
  get runs(): number {
    return existsSync(this.notes) ? readFileSync(this.notes, "utf8").split("\n").length - 1 : 0
  }

  get text(): string {
    return existsSync(this.notes) ? readFileSync(this.notes, "utf8") : ""
  }

  /** The text of a file beside the program. */
  read(name: string): string {
    return readFileSync(join(this.root, name), "utf8")
  }

  /** Does something with the journal as another process does. */
  withJournal<A>(act: (journal: Journal["Service"]) => Effect.Effect<A>): Promise<A> {
    return Effect.runPromise(
      Effect.provide(Effect.flatMap(Journal, act), Layer.fresh(Journal.layerAt(join(this.root, "journal"))))
    )
  }

  settings(server: Server, agent: TestAgent, more: Partial<Settings> = {}): Settings {
    return {
      ...DEFAULTS,
      server: server.url,
      handle: agent.handle,
      key: agent.key,
      agent: "command",
      allow: "all",
      command: { new: [this.program] },
      settleMs: 0,
      retrySeconds: [0, 0],
      runsPerConversationHour: 1_000,
      runsPerHour: 1_000,
      runsPerDay: 1_000,
      ...more
    }
  }
}

/** Which call of a connector it does not survive: the connector stops before it and does nothing more. */
export interface Crash {
  readonly at: number
  /** The names of the calls so far. */
  readonly calls: Array<string>
  crashed: boolean
  /** The name of the call before which it stopped. */
  next?: string
}

/** Calls that only read, or that wait for something to happen. */
const READS = new Set([
  "take",
  "work",
  "runOf",
  "unfinished",
  "starts",
  "fact",
  "dataVersion",
  "close",
  "handle",
  "isContact"
])

const guarded = <S extends object>(name: string, service: S, crash: Crash, gone: () => boolean): S => {
  const guard = (method: string, effect: Effect.Effect<unknown, unknown>): Effect.Effect<unknown, unknown> =>
    Effect.suspend(() => {
      if (gone()) return Effect.die("the connector has crashed")
      if (crash.crashed) return Effect.never
      if (READS.has(method)) return effect
      crash.crashed = crash.calls.length === crash.at
      if (crash.crashed) {
        crash.next = `${name}.${method}`
        return Effect.never
      }
      crash.calls.push(`${name}.${method}`)
      return effect
    })
  return Object.fromEntries(
    Object.entries(service).map(([method, value]) => [
      method,
      Effect.isEffect(value)
        ? guard(method, value as Effect.Effect<unknown, unknown>)
        : (...args: ReadonlyArray<unknown>) =>
          guard(method, (value as (...args: ReadonlyArray<unknown>) => Effect.Effect<unknown, unknown>)(...args))
    ])
  ) as S
}

/** A connector in this process. */
export interface Running {
  /** The events that it has logged. */
  readonly log: ReadonlyArray<{ readonly event: string; readonly [field: string]: unknown }>
  /** Ends it as SIGTERM does. */
  readonly stop: () => Promise<void>
  /** How it has ended; undefined while it runs. */
  readonly ended: () => string | undefined
}

/** Starts a connector in this process, on this machine's files. It stops at `crash` as a process that is killed. */
export const startConnector = (machine: Machine, settings: Settings, crash?: Crash): Running => {
  const log: Array<{ event: string; readonly [field: string]: unknown }> = []
  let gone = false
  let ended: string | undefined
  const adapter = adapterOf(settings.agent, settings.command)
  const plan = crash ?? { at: Infinity, calls: [], crashed: false }
  const around = <S extends object>(name: string) => (service: S) => guarded(name, service, plan, () => gone)
  mkdirSync(machine.root, { recursive: true })
  const services = Layer.mergeAll(
    Layer.effect(Journal, Effect.map(Journal, around("journal"))).pipe(
      Layer.provide(Layer.fresh(Journal.layerAt(join(machine.root, "journal"))))
    ),
    Layer.effect(ParleyApi, Effect.map(ParleyApi, around("api"))).pipe(Layer.provide(ParleyApi.layer(settings))),
    Layer.effect(ParleySocket, Effect.map(ParleySocket, around("socket"))).pipe(
      Layer.provide(Layer.fresh(ParleySocket.layer(settings)))
    ),
    Layer.effect(Runs, Effect.map(Runs, around("runs"))).pipe(Layer.provide(Runs.layer({
      adapter,
      home: join(machine.root, "home"),
      work: join(machine.root, "work"),
      env: settings.env,
      args: settings.args,
      runSeconds: settings.runSeconds
    }))),
    Layer.succeed(RunLog, { note: (event, fields) => Effect.sync(() => void log.push({ event, ...fields })) })
  )
  const fiber = Effect.runFork(
    Effect.scoped(connect(settings, adapter)).pipe(
      Effect.provide(services),
      Effect.onExit((exit) => Effect.sync(() => (ended = String(exit)))),
      Effect.provideService(Console.Console, console)
    )
  )
  return {
    log,
    stop: async () => {
      // A connector that may crash does nothing at its end either.
      gone = crash !== undefined
      await Effect.runPromise(Fiber.interrupt(fiber))
    },
    ended: () => ended
  }
}

/** A message as sync shows it. */
export interface Received {
  readonly id: string
  readonly delivery_id: string
  readonly sender: string
  readonly conversation_id: string
  readonly content: { readonly text?: string }
  readonly metadata: {
    readonly connect?: { readonly auto: boolean; readonly hop: number; readonly answers: ReadonlyArray<string> }
  }
}

/** The messages that are stored for an agent and not acknowledged. */
export const stored = async (agent: TestAgent): Promise<ReadonlyArray<Received>> => {
  const answer = await agent.http.get("/v1/messages/sync?limit=500")
  return answer.body as ReadonlyArray<Received>
}

/** Acknowledges all that is stored for an agent. */
export const acknowledgeAll = async (agent: TestAgent): Promise<void> => {
  const last = (await stored(agent)).at(-1)
  if (last !== undefined) await agent.http.post("/v1/messages/sync/ack", { last_delivery_id: last.delivery_id })
}

/** Two new agents that have written to each other, so that both may write as often as they like. */
export const acquainted = async (server: Server): Promise<readonly [ada: TestAgent, bob: TestAgent]> => {
  const [ada, bob] = await Promise.all([newAgent(server, "ada"), newAgent(server, "bob")])
  await send(bob, ada.handle, "Hello")
  await send(ada, bob.handle, "Hello")
  await Promise.all([acknowledgeAll(ada), acknowledgeAll(bob)])
  return [ada, bob]
}

/** Sends a text and returns its id. */
export const send = async (from: TestAgent, to: string, text: string): Promise<string> => {
  const { message } = await from.client.sendMessage({ to, content: { text } })
  return message.id
}

/** The replies of an agent's connector to another agent, once they name all of these messages. */
export const replies = (to: TestAgent, from: TestAgent, ids: ReadonlyArray<string>): Promise<ReadonlyArray<Received>> =>
  eventually(`replies to ${ids.length} messages`, async () => {
    const got = (await stored(to)).filter(({ sender }) => sender === from.handle)
    const named = got.flatMap(({ metadata }) => metadata.connect?.answers ?? [])
    return ids.every((id) => named.includes(id)) ? got : undefined
  })

/** Waits until nothing is left for an agent to acknowledge. */
export const acknowledged = (agent: TestAgent): Promise<true> =>
  eventually(`${agent.handle} has acknowledged everything`, async () => (await stored(agent)).length === 0 || undefined)

/** The messages that replies answer, each as often as it is named. */
export const answeredBy = (got: ReadonlyArray<Received>): ReadonlyArray<string> =>
  got.flatMap(({ metadata }) => metadata.connect?.answers ?? [])
