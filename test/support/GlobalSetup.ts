import { Effect, Redacted, References } from "effect"
import { createServer } from "node:http"
import { Client } from "pg"
import type { TestProject } from "vitest/node"
import { PostgresServer, type PostgresVersion } from "../../runners/local/Postgres.ts"
import * as Migrations from "../../src/platform/Migrations.ts"
import { layerPg } from "../../src/platform/Sql.ts"

declare module "vitest" {
  interface ProvidedContext {
    /** Where a test worker asks for databases. */
    readonly databases: string
  }
}

const TEMPLATE = "parley_template"

/** One server for all test files, started by the first that asks for a database. */
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
    await Effect.runPromise(Migrations.run().pipe(
      Effect.provideService(References.MinimumLogLevel, "Warn"),
      Effect.provide(database)
    ))
    return server
  }

  async #statement(server: PostgresServer, text: string): Promise<void> {
    const client = new Client(server.url())
    await client.connect()
    await client.query(text).finally(() => client.end())
  }

  /** The URL of a database that nobody else uses; one at a time, because a template may not be in use. */
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
  return async () => {
    answering.close()
    await Promise.all([...servers.values()].map((server) => server.stop()))
  }
}
