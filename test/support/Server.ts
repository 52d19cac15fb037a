import { createDatabase } from "#infrastructure/database/PreparedDatabase"
import { assert, inject } from "@effect/vitest"
import { AgentChatClient, RealtimeClient, type RealtimeOptions } from "agentchatme"
import { Effect } from "effect"
import { type ChildProcess, spawn } from "node:child_process"
import { randomBytes } from "node:crypto"
import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { freshDatabase } from "./Databases.ts"
import { eventually, LONGEST_WAIT_MS, within } from "./Eventually.ts"
import { type Answer, Http, untilTaken } from "./Http.ts"
import { Outbox } from "./Outbox.ts"
import { patient } from "./Patient.ts"
import { endedLate, keepLog } from "./ServerLogs.ts"

const ROOT = fileURLToPath(new URL("../..", import.meta.url))

/**
 * Node's options for a process that lives for seconds: PGlite's WebAssembly is compiled once and quickly, and not again
 * with optimisation on other threads, and the heap's young generation is large. Saves a third of a start's processor
 * time.
 */
export const SHORT_LIVED = ["--liftoff-only", "--min-semi-space-size=32"]

/** The path of the program. */
export const PROGRAM = join(ROOT, "runners/parley.js")

/** The program of a standalone server or of a node. */
export const parley = (command: "start" | "runner"): ReadonlyArray<string> => [PROGRAM, command]

/**
 * The part of this process's environment that a program gets, and the folder of V8's compile cache that all programs
 * share.
 */
export const programEnv = () => ({
  PATH: process.env["PATH"],
  HOME: process.env["HOME"],
  // Not the settings of the checkout's own `.env`.
  PARLEY_CONFIG: "/dev/null",
  NODE_COMPILE_CACHE: join(ROOT, "node_modules/.cache/parley-tests/compiled")
})

/** Limits so high that only tests of limits reach them, and settings with which answers are sent at once. */
export const RELAXED = {
  SOCKETS_HELLO_SECONDS: "60",
  SOCKETS_PONG_SECONDS: "180",
  LIMITS_SENDS_PER_SECOND: "1000000",
  LIMITS_COLD_CONVERSATIONS: "1000000",
  LIMITS_REGISTER_PER_HOUR: "1000000",
  LIMITS_REGISTER_VERIFY_PER_10_MINUTES: "1000000",
  LIMITS_RECOVER_PER_HOUR: "1000000",
  LIMITS_RECOVER_VERIFY_PER_10_MINUTES: "1000000",
  LIMITS_ROTATE_PER_HOUR: "1000000",
  LIMITS_ROTATE_VERIFY_PER_10_MINUTES: "1000000",
  LIMITS_SIGN_IN_PER_HOUR: "1000000",
  LIMITS_SIGN_IN_VERIFY_PER_10_MINUTES: "1000000",
  LIMITS_OAUTH_AUTHORIZE_PER_10_MINUTES: "1000000",
  LIMITS_OAUTH_KEYS_PER_10_MINUTES: "1000000",
  LIMITS_OAUTH_REGISTRATIONS_PER_HOUR: "1000000",
  LIMITS_OAUTH_TOKENS_PER_MINUTE: "1000000",
  LIMITS_OAUTH_DOCUMENTS_PER_10_MINUTES: "1000000",
  LIMITS_OTP_ANSWER_MS: "0",
  LIMITS_CARDS_PER_MINUTE: "1000000",
  LIMITS_REACTIONS_PER_MINUTE: "1000000",
  LIMITS_CONVERSATION_LISTS_PER_MINUTE: "1000000",
  LIMITS_CONTACT_LISTS_PER_MINUTE: "1000000",
  LIMITS_CONTACT_CHECKS_PER_MINUTE: "1000000",
  LIMITS_DIRECTORY_PER_MINUTE: "1000000",
  LIMITS_DIRECTORY_PER_DAY: "1000000",
  LIMITS_ANONYMOUS_DIRECTORY_PER_MINUTE: "1000000",
  LIMITS_REQUESTS_PER_MINUTE: "1000000",
  LIMITS_ANONYMOUS_REQUESTS_PER_MINUTE: "1000000"
}

/** Codes, access and refresh tokens, OAuth secrets and cookies. */
export const OAUTH_SECRET = /o(?:ac|at|rt|cs|rk)_[A-Za-z0-9_-]{43}/

/**
 * The environment of a server whose clock runs a hundred times slower than the machine's. Its timers are as quick as
 * ever.
 */
export const slowClock: Readonly<Record<string, string>> = {
  NODE_OPTIONS: `--import ${new URL("SlowClock.js", import.meta.url).href}`,
  CLOCK_SLOWNESS: "100"
}

/** The environment of a server whose clocks both go `seconds` forward with each SIGUSR2. */
export const leapingClock = (seconds: number): Readonly<Record<string, string>> => ({
  NODE_OPTIONS: `--import ${new URL("ShiftedClock.js", import.meta.url).href}`,
  CLOCK_LEAP_SECONDS: String(seconds)
})

export interface ServerOptions {
  /** Settings in addition to `RELAXED` and a free port. */
  readonly env?: Readonly<Record<string, string>>
  /** A folder that stays when the server stops; without it, a new one that is removed. */
  readonly dataDir?: string
  /** The program to run in place of a standalone server. */
  readonly program?: ReadonlyArray<string>
  /** The most files that its process may have open (`ulimit -n`); that of this process by default. */
  readonly openFiles?: number
}

/** An agent that registered through the API. */
export interface TestAgent {
  readonly id: string
  readonly handle: string
  readonly email: string
  readonly key: string
  readonly http: Http
  /** The published client, unchanged. */
  readonly client: AgentChatClient
  readonly realtime: (options?: Partial<RealtimeOptions>) => RealtimeClient
}

/** A server in a process of its own, on a free port of 127.0.0.1. */
export class Server {
  readonly process: ChildProcess
  readonly dataDir: string
  readonly outbox: Outbox
  stdout = ""
  stderr = ""
  /** The server's URL, which is known once it listens. */
  url = ""
  /** The environment with which operators' commands reach its database. */
  readonly place: Readonly<Record<string, string>>
  /** Other nodes that serve at the same address. */
  others: ReadonlyArray<Server> = []
  /** Ends the other nodes before this one's files are removed. */
  endOthers: () => Promise<void> = () => Promise.resolve()
  /** What `stop` does instead if several test files share the server. */
  release: (() => Promise<void>) | undefined
  private readonly exited: Promise<number | NodeJS.Signals>
  private readonly ownsData: boolean
  /** Its port; 0 for any free port. */
  private readonly port: number
  private terminated = false
  private readonly keys = new Set<string>()
  private readonly codes = new Set<string>()
  private readonly bodies = new Set<string>()

  constructor(
    dataDir: string,
    ownsData: boolean,
    env: Readonly<Record<string, string>>,
    program: ReadonlyArray<string> = parley("start"),
    outlivesFile = false,
    openFiles?: number
  ) {
    this.dataDir = dataDir
    this.ownsData = ownsData
    this.port = Number(env["PORT"] ?? 0)
    const { DATABASE_URL } = env
    this.place = DATABASE_URL === undefined ? { DATA_DIR: dataDir } : { DATA_DIR: dataDir, DATABASE_URL }
    this.outbox = new Outbox(env["MAIL_OUTBOX"] ?? join(dataDir, "outbox"))
    const limited = openFiles === undefined ? [] : ["/bin/sh", "-c", `ulimit -n ${openFiles}; exec "$@"`, "sh"]
    const [command = "", ...words] = [...limited, join(ROOT, "node_modules/.bin/node")]
    this.process = spawn(
      command,
      [
        ...words,
        ...SHORT_LIVED,
        ...outlivesFile ? ["--import", "./test/support/EndWithParent.ts"] : [],
        ...program
      ],
      {
        cwd: ROOT,
        env: { ...programEnv(), ...env, DATA_DIR: dataDir },
        stdio: [outlivesFile ? "pipe" : "ignore", "pipe", "pipe"]
      }
    )
    const log = keepLog(`${program.join(" ").replace(PROGRAM, "parley")} (process ${this.process.pid})`)
    this.process.stdout?.setEncoding("utf8").on("data", (text: string) => {
      this.stdout += text
      log.add(text)
    })
    this.process.stderr?.setEncoding("utf8").on("data", (text: string) => {
      this.stderr += text
      log.add(text)
    })
    this.exited = new Promise((resolve, reject) => {
      this.process.on("error", reject)
      // `close`, not `exit`: the streams have been read to their end.
      this.process.on("close", (code, signal) => {
        log.end(code ?? signal ?? -1)
        resolve(code ?? signal ?? -1)
      })
    })
    // A worker that dies must not leave servers behind.
    if (!outlivesFile) process.once("exit", () => this.process.kill("SIGKILL"))
  }

  get wsUrl(): string {
    return this.url.replace(/^http/, "ws")
  }

  /** The logs of this node and then of the other nodes. */
  get log(): string {
    return [this, ...this.others].map(({ stderr }) => stderr).join("")
  }

  /** The end of its output. */
  get output(): string {
    return `--- stdout\n${this.stdout.slice(-2_000)}\n--- stderr\n${this.stderr.slice(-4_000)}`
  }

  /**
   * Plain HTTP, with a key or without. A server that got no processor time for seconds refuses changes for a moment, and
   * a node is excluded by the others: what is refused therefore is repeated.
   */
  http(key?: string): Http {
    return new Http(this.url, key, this.observe, true)
  }

  /** Waits for the printed address and for readiness. */
  async ready(timeoutMs = 2 * LONGEST_WAIT_MS): Promise<void> {
    const gone = this.exited.then((how) => assert.fail(`the server ended (${how}) before it was ready\n${this.output}`))
    // A PUBLIC_URL may be https, and without a port.
    const address = this.port === 0 ? /http:\/\/[\w.:[\]-]+:\d+/ : /https?:\/\/[\w.:[\]-]+/
    const printed = await Promise.race([
      gone,
      eventually("the printed address", () => this.stdout.match(address)?.[0], timeoutMs)
        .catch((error: unknown) => assert.fail(`${String(error)}\n${this.output}`))
    ])
    // With a PUBLIC_URL, the printed address is not the server's own.
    this.url = this.port === 0 ? printed : `http://127.0.0.1:${this.port}`
    await Promise.race([
      gone,
      eventually(
        "readiness",
        () => fetch(`${this.url}/v1/ready`).then((r) => r.ok || undefined, () => undefined),
        timeoutMs
      )
    ])
  }

  /** Sends SIGTERM and returns at once. Sends it only once, because a second one would cut the drain short. */
  terminate(): void {
    if (!this.terminated) this.process.kill("SIGTERM")
    this.terminated = true
  }

  /** Waits for its end, and asserts that it exited with 0, unless it got too little processor time to finish. */
  async ended(): Promise<void> {
    const how = await this.exit()
    if (!endedLate(how, this.stderr)) assert.strictEqual(how, 0, `exit code\n${this.output}`)
  }

  /** Waits until the process has ended and all it wrote is read. */
  exit(timeoutMs = LONGEST_WAIT_MS): Promise<number | NodeJS.Signals> {
    return within(`the end of the server\n${this.output}`, this.exited, timeoutMs)
  }

  /** Stops it with SIGTERM, and asserts that it exited with 0 and logged no secret. */
  async stop(): Promise<void> {
    if (this.release !== undefined) return this.release()
    this.terminate()
    try {
      await this.ended()
    } finally {
      await this.cleanUp()
    }
    this.assertNoSecrets()
  }

  /** Ends it with SIGKILL; a given `dataDir` stays. */
  async kill(): Promise<void> {
    this.process.kill("SIGKILL")
    await this.exit()
    await this.cleanUp()
    this.assertNoSecrets()
  }

  /**
   * Asserts that no key, OAuth token or message body was printed or logged, and no one-time code logged (on standard
   * error).
   */
  assertNoSecrets(): void {
    const { log } = this
    const printed = [this, ...this.others].map(({ stdout }) => stdout).join("")
    for (const key of this.keys) {
      assert.notInclude(printed, key, "an API key on standard output")
      assert.notInclude(log, key, "an API key in the log")
    }
    for (const text of this.bodies) {
      assert.notInclude(printed, text, "a message on standard output")
      assert.notInclude(log, text, "a message in the log")
    }
    assert.deepStrictEqual(`${printed}${log}`.match(OAUTH_SECRET), null, "an OAuth token")
    const logged = new Set(log.match(/(?<![\w.-])\d{6}(?![\w.-])/g))
    assert.deepStrictEqual([...this.codes].filter((code) => logged.has(code)), [], "one-time codes in the log")
  }

  /** The next code mailed to this address; remembered as a secret. */
  async code(address: string): Promise<string> {
    const code = await this.outbox.code(address)
    this.codes.add(code)
    return code
  }

  private readonly observe = (sent: unknown, answer: Answer): void => {
    const issued = answer.status < 300 ? answer.text.match(/"api_key":"([^"]+)"/)?.[1] : undefined
    if (issued !== undefined) this.keys.add(issued)
    const text = (sent as { readonly content?: { readonly text?: unknown } } | null | undefined)?.content?.text
    if (typeof text === "string" && text.trim().length >= 8) this.bodies.add(text)
  }

  /** Asserts that it still serves and has logged no secret so far, and forgets the secrets and the log. */
  async settle(): Promise<void> {
    // The log is written before the next request is answered, and read here before the answer to the one after that.
    for (let i = 0; i < 2; i++) {
      await eventually("readiness", () => fetch(`${this.url}/v1/ready`).then((r) => r.ok || undefined, () => undefined))
        .catch((error: unknown) => assert.fail(`${String(error)}\n${this.output}`))
    }
    this.assertNoSecrets()
    for (const secrets of [this.keys, this.codes, this.bodies]) secrets.clear()
    this.stdout = ""
    this.stderr = ""
  }

  private async cleanUp(): Promise<void> {
    await this.endOthers()
    if (this.ownsData) await rm(this.dataDir, { recursive: true, force: true })
  }
}

/** The number of nodes behind a balancer that replace each server; 0 for a standalone server. */
export const NODES = Number(process.env["NODES"] ?? 0)

/**
 * Starts a standalone server and waits until it is ready. Without a `dataDir` it gets a new database of the tests'
 * PostgreSQL: it starts in half the processor time of one on PGlite, which the shared servers run on.
 */
export const startServer = async (options: ServerOptions = {}): Promise<Server> => {
  if (
    NODES > 0 && options.program === undefined && options.dataDir === undefined &&
    options.env?.["DATABASE_URL"] === undefined
  ) {
    return (await import("./Nodes.ts")).startBalanced(NODES, options.env)
  }
  const onPostgres = options.dataDir === undefined && options.program === undefined &&
    options.env?.["DATABASE_URL"] === undefined
  const inDataDir = !onPostgres && options.env?.["DATABASE_URL"] === undefined
  const dataDir = options.dataDir ??
    (inDataDir ? await makeDataDir() : await mkdtemp(join(tmpdir(), "parley-data-")))
  const env = {
    PORT: "0",
    HOST: "127.0.0.1",
    LOG_LEVEL: "debug",
    ...RELAXED,
    ...onPostgres ? { DATABASE_URL: await freshDatabase() } : {},
    ...options.env
  }
  const server = new Server(dataDir, options.dataDir === undefined, env, options.program, false, options.openFiles)
  try {
    await server.ready()
  } catch (error) {
    await server.kill().catch(() => undefined)
    throw error
  }
  return server
}

/**
 * Settings of the shared server beyond `RELAXED`: limits per agent that some test files reach on purpose and no other
 * one comes near, and webhooks that may go to this machine and are tried again soon.
 */
const SHARED = {
  LIMITS_CONTACT_CHECKS_PER_MINUTE: "30",
  LIMITS_CONTACT_LISTS_PER_MINUTE: "30",
  LIMITS_STORAGE_PER_AGENT: "30000000",
  LIMITS_PUSH_CONFIGS_PER_TASK: "3",
  WEBHOOK_ALLOW_PRIVATE: "loopback",
  WEBHOOK_RETRY_SECONDS: "1,1,1,1,1,1,1"
}

let shared: Server | undefined

/**
 * The standalone server of this worker, which runs one test file at a time: for files that need no other settings and
 * no empty database. `stop` makes the same assertions as for any server, except on its exit, which GlobalSetup asserts
 * after the run. If a file breaks the server, that file fails and the next one gets a new server.
 */
export const sharedServer = async (): Promise<Server> => {
  if (NODES > 0) return startServer({ env: SHARED })
  if (shared !== undefined && shared.process.exitCode === null && shared.process.signalCode === null) return shared
  const env = { PORT: "0", HOST: "127.0.0.1", LOG_LEVEL: "debug", ...RELAXED, ...SHARED }
  const server = new Server(await newDataDir(join(inject("folder"), "server-")), true, env, undefined, true)
  server.release = async () => {
    try {
      await server.settle()
    } catch (error) {
      shared = undefined
      await server.kill().catch(() => undefined)
      throw error
    }
  }
  await server.ready().catch(async (error: unknown) => {
    await server.kill().catch(() => undefined)
    throw error
  })
  return shared = server
}

let serial = 0

/** A unique handle. */
export const freshHandle = (prefix: string): string =>
  `${prefix}-${(serial++).toString(36)}${randomBytes(3).toString("hex")}`

/** The test's view of an account, with its key and clients. */
export const agentOf = (
  server: Server,
  account: { readonly id: string; readonly handle: string; readonly email: string },
  key: string
): TestAgent => {
  const client = new AgentChatClient({ apiKey: key, baseUrl: server.url, fetch: patient })
  return {
    ...account,
    key,
    http: server.http(key),
    client,
    realtime: (options) => new RealtimeClient({ apiKey: key, baseUrl: server.wsUrl, client, ...options })
  }
}

/** Registers an agent through the real API, with the code from the outbox. */
export const newAgent = async (
  server: Server,
  prefix: string,
  profile: Readonly<Record<string, string>> = {}
): Promise<TestAgent> => {
  const handle = freshHandle(prefix)
  const email = `${handle}@example.com`
  const http = server.http()
  const begun = await untilTaken(() => http.post("/v1/register", { email, handle, ...profile }))
  assert.strictEqual(begun.status, 200, `${begun}`)
  // The shapes of both answers are asserted by the registration tests.
  const { pending_id } = begun.body as { pending_id: string }
  const code = await server.code(email)
  const done = await untilTaken(() => http.post("/v1/register/verify", { pending_id, code }))
  assert.strictEqual(done.status, 200, `${done}`)
  const { agent, api_key } = done.body as { agent: { id: string }; api_key: string }
  return agentOf(server, { id: agent.id, handle, email }, api_key)
}

/** A new folder for a server's data, with an empty database. */
const newDataDir = async (prefix: string): Promise<string> => {
  const folder = await mkdtemp(prefix)
  await Effect.runPromise(createDatabase(folder))
  return folder
}

/** A folder for a server's data that outlives the server; the caller removes it. */
export const makeDataDir = (): Promise<string> => newDataDir(join(tmpdir(), "parley-data-"))
