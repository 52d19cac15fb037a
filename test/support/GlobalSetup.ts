import * as Migrations from "#infrastructure/database/Migrations"
import { createDatabase, isPrepared } from "#infrastructure/database/PreparedDatabase"
import { layerPg } from "#infrastructure/database/SqlPostgres"
import { Effect, Redacted, References } from "effect"
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises"
import { createServer } from "node:http"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Client } from "pg"
import type { TestProject } from "vitest/node"
import { bundleFolder } from "../../runners/bundle.js"
import { PostgresServer, type PostgresVersion } from "../../runners/local/Postgres.ts"
import { LONGEST_WAIT_MS } from "./Eventually.ts"
import { endedLate } from "./ServerLogs.ts"

declare module "vitest" {
  interface ProvidedContext {
    /** The URL at which a test worker requests new databases. */
    readonly databases: string
    /** The folder for the data of servers that outlive a test file; each leaves its exit code there. */
    readonly folder: string
  }
}

const TEMPLATE = "parley_template"

/** One PostgreSQL server for all test files, started by the first request for a database. */
class SharedServer {
  readonly #version: PostgresVersion
  #started: Promise<PostgresServer> | undefined
  #last: Promise<unknown> = Promise.resolve()
  #count = 0

  constructor(version: PostgresVersion) {
    this.#version = version
  }

  async #start(): Promise<PostgresServer> {
    const server = await PostgresServer.start(this.#version)
    await this.#statement(server, `CREATE DATABASE ${TEMPLATE}`)
    const database = layerPg({ url: Redacted.make(server.url(TEMPLATE)), poolSize: 1 })
    await Effect.runPromise(
      Migrations.run().pipe(
        Effect.provideService(References.MinimumLogLevel, "Warn"),
        Effect.provide(database)
      )
    )
    return server
  }

  async #statement(server: PostgresServer, text: string): Promise<void> {
    const client = new Client(server.url())
    await client.connect()
    await client.query(text).finally(() => client.end())
  }

  /** The URL of a new database. Creates one at a time, because PostgreSQL copies no template that is in use. */
  fresh(migrated: boolean): Promise<string> {
    this.#started ??= this.#start()
    const made = this.#last.then(async () => {
      const server = await this.#started!
      const name = `test_${++this.#count}`
      await this.#statement(server, `CREATE DATABASE ${name}${migrated ? ` TEMPLATE ${TEMPLATE}` : ""}`)
      return server.url(name)
    })
    this.#last = made.catch(() => {})
    return made
  }

  async stop(): Promise<void> {
    const server = await this.#started?.catch(() => undefined)
    await server?.stop()
  }
}

/** A problem for each server with a folder in `folder` that did not exit with 0 soon after its worker had ended. */
const endedBadly = async (folder: string): Promise<ReadonlyArray<string>> => {
  const problems: Array<string> = []
  for (const name of await readdir(folder)) {
    let code: string | undefined
    for (const deadline = Date.now() + LONGEST_WAIT_MS; code === undefined && Date.now() < deadline;) {
      code = await readFile(join(folder, name, "ended"), "utf8").catch(() => undefined)
      if (code === undefined) await new Promise((resolve) => setTimeout(resolve, 50))
    }
    const log = await readFile(join(folder, name, "last.log"), "utf8").catch(() => "")
    if (code === "0" || endedLate(Number(code), log)) continue
    problems.push(`the server of several test files in ${name} ended with ${code ?? "nothing yet"}\n${log}`)
  }
  return problems
}

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const servers = new Map<string, SharedServer>([["15", new SharedServer(15)], ["18", new SharedServer(18)]])
  const answering = createServer((request, response) => {
    const [, version = "", kind = ""] = (request.url ?? "").split("/")
    const server = servers.get(version)
    if (server === undefined) {
      response.writeHead(404).end()
      return
    }
    server.fresh(kind === "migrated").then(
      (url) => response.end(url),
      (error: unknown) => response.writeHead(500).end(String(error))
    )
  })
  await new Promise<void>((resolve) => answering.listen(0, "127.0.0.1", resolve))
  const address = answering.address()
  if (address === null || typeof address === "string") throw new Error("no address")
  project.provide("databases", `http://127.0.0.1:${address.port}`)
  const folder = await mkdtemp(join(tmpdir(), "parley-run-"))
  project.provide("folder", folder)
  // Otherwise the first tests would all make the bundle and the prepared database.
  if (await bundleFolder() === undefined) throw new Error("the program cannot be bundled: see build/Bundler.ts")
  if (!await Effect.runPromise(isPrepared)) {
    const dataDir = await mkdtemp(join(tmpdir(), "parley-prepared-"))
    await Effect.runPromise(createDatabase(dataDir))
    await rm(dataDir, { recursive: true, force: true })
  }
  return async () => {
    answering.close()
    const [problems] = await Promise.all([endedBadly(folder), ...[...servers.values()].map((server) => server.stop())])
    await rm(folder, { recursive: true, force: true })
    if (problems.length > 0) throw new Error(problems.join("\n"))
  }
}
