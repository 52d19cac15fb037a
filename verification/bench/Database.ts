import { Client } from "pg"
import { PostgresServer } from "../../runners/local/Postgres.ts"
import { parentOf } from "./CpuTime.ts"

/** An empty database on a PostgreSQL that is durable, and the process to account its work to. */
export interface BenchDatabase {
  readonly url: string
  readonly version: string
  /** Of the postmaster; unknown when PostgreSQL runs on another machine. */
  readonly pid: number | undefined
  readonly stop: () => Promise<void>
}

/**
 * Its version and its postmaster; fails unless a commit there waits for the disk:
 * figures of anything else would mean nothing.
 */
const inspect = async (url: string): Promise<{ readonly version: string; readonly pid: number | undefined }> => {
  const client = new Client({ connectionString: url })
  await client.connect()
  try {
    const { rows } = await client.query(
      "SELECT current_setting('fsync') AS fsync, current_setting('synchronous_commit') AS synchronous_commit, " +
        "current_setting('server_version') AS version, pg_backend_pid() AS backend"
    )
    const { backend, fsync, synchronous_commit, version } = rows[0] as Record<string, string> & { readonly backend: number }
    if (fsync !== "on" || synchronous_commit !== "on") {
      throw new Error(`PostgreSQL has fsync=${fsync} and synchronous_commit=${synchronous_commit}: both must be on`)
    }
    const local = ["127.0.0.1", "localhost", "[::1]"].includes(new URL(url).hostname)
    return { version: version!, pid: local ? parentOf(backend) : undefined }
  } finally {
    await client.end()
  }
}

const ours = async (): Promise<BenchDatabase> => {
  const server = await PostgresServer.start(18, {
    fsync: true,
    settings: { synchronous_commit: "on", shared_buffers: "'128MB'" }
  })
  return { url: server.url(), ...await inspect(server.url()), stop: () => server.stop() }
}

const theirs = async (given: string): Promise<BenchDatabase> => {
  const name = `parley_bench_${process.pid}`
  const admin = async (sql: string) => {
    const client = new Client({ connectionString: given })
    await client.connect()
    await client.query(sql).finally(() => client.end())
  }
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
