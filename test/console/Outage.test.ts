import { assert, describe, it } from "@effect/vitest"
import { isInstalled } from "../../runners/local/Postgres.ts"
import { freshDatabase } from "../support/Databases.ts"
import { eventually, within } from "../support/Eventually.ts"
import { Link } from "../support/Link.ts"
import { Operating, request } from "../support/Operating.ts"
import { startServer } from "../support/Server.ts"

interface Overview {
  readonly nodes: ReadonlyArray<{ readonly state: string; readonly words: string }>
  readonly database: { readonly state: string }
}

/** What an overview says of the one node and of its database. */
const told = ({ database, nodes }: Overview): string =>
  `${nodes.map(({ state }) => state).join()}, database ${database.state}`

const READY = /^ready, database (ok|slow)$/
const AWAY = "not_ready, database down"

describe.skipIf(!isInstalled(18))("while the database does not answer", () => {
  it("the page and programs get the same error at once; credentials that cannot be checked get 503", async () => {
    const url = new URL(await freshDatabase(18))
    const link = await Link.open("127.0.0.1", { host: url.hostname, port: Number(url.port) })
    url.port = String(link.address.port)
    const server = await startServer({ env: { DATABASE_URL: url.href } })
    try {
      const [session, program, unknown] = [
        await Operating.signIn(server),
        await Operating.program(server),
        await Operating.program(server)
      ]
      await eventually(
        "a node that is ready",
        async () => READY.test(told(await program.ok("GET", "/overview"))) || undefined
      )
      const stream = await fetch(`${server.url}/console/api/stream`, { headers: session.headers })
      const seen: Array<string> = []
      const following = (async () => {
        let text = ""
        for await (const part of stream.body as unknown as AsyncIterable<Uint8Array>) {
          text += Buffer.from(part).toString("utf8")
          const events = text.split("\n\n")
          text = events.pop() ?? ""
          for (const event of events)
            seen.push(
              event.startsWith("event: end") ? "end" : told(JSON.parse(event.slice(event.indexOf("{"))) as Overview)
            )
        }
      })().catch(() => undefined)
      await eventually("the same on the page", () => READY.test(seen.at(-1) ?? "") || undefined)

      link.hold("there", "back")
      const before = seen.length
      const answers = await Promise.all(
        [program, session, unknown].map(({ headers }) => request(server, "GET", "/overview", headers))
      )
      assert.deepStrictEqual(answers.map(({ status }) => status), [200, 200, 503])
      assert.deepStrictEqual(answers.slice(0, 2).map(({ body }) => told(body as Overview)), [AWAY, AWAY])
      assert.strictEqual((answers[2]?.body as { readonly code: string } | undefined)?.code, "UNAVAILABLE")
      assert.strictEqual((await fetch(`${server.url}/v1/ready`)).status, 503)
      await eventually("events of the outage", () => seen.length >= before + 3 || undefined)
      // The first one may have been on its way.
      assert.deepStrictEqual(seen.slice(before + 1).filter((one) => one !== AWAY), [])
      await eventually(
        "the look in the log",
        () => server.stderr.includes("could not be written into the audit log") || undefined
      )

      link.release()
      await eventually("the end of the outage", () => READY.test(seen.at(-1) ?? "") || undefined)
      await stream.body?.cancel().catch(() => undefined)
      server.terminate()
      await within("the end of the stream", following)
    } finally {
      await server.stop()
      link.close()
    }
  })
})
