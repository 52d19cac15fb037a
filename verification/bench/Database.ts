import { Client } from "pg"
import { PostgresServer } from "../../runners/local/Postgres.ts"
import { parentOf } from "./CpuTime.ts"

/** An empty database on a PostgreSQL that is durable, and the process to account its work to. */
export interface BenchDatabase {
  readonly url: string
  readonly version: string
  /** The process id of the postmaster; undefined if PostgreSQL runs on another machine. */
  readonly pid: number | undefined
  readonly stop: () => Promise<void>
}

/**
 * Runs `use` with a connection of the bench's own. An idle connection that ends because the bench is stopped is no
 * error.
 */
export const connected = async <A>(url: string, use: (client: Client) => Promise<A>): Promise<A> => {
  const client = new Client({ connectionString: url })
  client.on("error", () => undefined)
  await client.connect()
  return use(client).finally(() => client.end())
}

/**
 * The server's version and its postmaster. Fails unless a commit there waits for the disk, because figures without that
 * would mean nothing.
 */
const inspect = (url: string): Promise<{ readonly version: string; readonly pid: number | undefined }> =>
  connected(url, async (client) => {
    const { rows } = await client.query(
      "SELECT current_setting('fsync') AS fsync, current_setting('synchronous_commit') AS synchronous_commit, " +
        "current_setting('server_version') AS version, pg_backend_pid() AS backend"
    )
    const { backend, fsync, synchronous_commit, version } = rows[0] as Record<string, string> & {
      readonly backend: number
    }
    if (fsync !== "on" || synchronous_commit !== "on") {
      throw new Error(`PostgreSQL has fsync=${fsync} and synchronous_commit=${synchronous_commit}: both must be on`)
    }
    const local = ["127.0.0.1", "localhost", "[::1]"].includes(new URL(url).hostname)
    return { version: version!, pid: local ? parentOf(backend) : undefined }
  })

const ours = async (): Promise<BenchDatabase> => {
  const server = await PostgresServer.start(18, {
    fsync: true,
    settings: { synchronous_commit: "on", shared_buffers: "'128MB'" }
  })
  return { url: server.url(), ...await inspect(server.url()), stop: () => server.stop() }
}

const theirs = async (given: string): Promise<BenchDatabase> => {
  const name = `parley_bench_${process.pid}`
  const admin = (sql: string) => connected(given, async (client) => void await client.query(sql))
  await admin(`CREATE DATABASE ${name}`)
  const url = new URL(given)
  url.pathname = `/${name}`
  return {
    url: url.href,
    ...await inspect(url.href),
    stop: () => admin(`DROP DATABASE IF EXISTS ${name} WITH (FORCE)`)
  }
}

/** A database of its own on the given server, or a PostgreSQL of its own. */
export const startDatabase = (given: string | undefined): Promise<BenchDatabase> =>
  given === undefined ? ours() : theirs(given)
