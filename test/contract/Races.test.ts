import { assert, describe, it } from "@effect/vitest"
import { isInstalled } from "../../runners/local/Postgres.ts"
import { freshDatabase } from "../support/Databases.ts"
import { eventually } from "../support/Eventually.ts"
import { type Server, startServer } from "../support/Server.ts"
import { type Both, type Race, races, WAITING } from "./Races.ts"
import { attempt, say } from "./Talk.ts"

describe.skipIf(!isInstalled(18))("200 callers at once over two servers on one PostgreSQL", () => {
  let dead = false

  const aDeath = (race: Race): void => {
    it("a server killed between a reservation and its message keeps the slot for a minute, and nothing else", async () => {
      const { agents, assertSound, at, count, rows } = race
      const database = race.database()
      const [a, ...others] = await agents(102) as [Both, ...Array<Both>]
      await Promise.all(others.slice(0, 99).map((other, i) => say(at(a, i), other[0])))
      const [last, next] = others.slice(99) as [Both, Both]
      await database.query("BEGIN")
      // The statement that stores messages gets no further than this.
      await database.query("LOCK TABLE messages IN SHARE ROW EXCLUSIVE MODE")
      const lost = attempt(a[1], last[1]).then(() => "answered", () => "lost")
      const reserved = () => count("cold_slots WHERE agent_id = $1 AND claimed_at IS NULL", a[0].id)
      const taken = () => count("cold_slots WHERE agent_id = $1", a[0].id)
      await eventually("the reservation", async () => await reserved() === 1 || undefined)
      await eventually("the message at the lock", async () => (await rows(WAITING)).length === 1 || undefined)
      await race.pair().servers[1].kill()
      dead = true
      // What the dead process had asked for would still be done.
      await rows(`SELECT pg_terminate_backend(pid) FROM (${WAITING}) w`)
      await database.query("COMMIT")
      assert.strictEqual(await lost, "lost")

      assert.deepStrictEqual([await taken(), await reserved()], [100, 1])
      assert.strictEqual(await count("conversations WHERE initiator_id = $1", a[0].id), 99)
      ;(await attempt(a[0], next[0])).refused(429, "COLD_CAP_EXCEEDED")
      // A minute later.
      await database.query("UPDATE cold_slots SET reserved_at = reserved_at - 60000 WHERE claimed_at IS NULL")
      await say(a[0], next[0])
      ;(await attempt(a[0], last[0])).refused(429, "COLD_CAP_EXCEEDED")
      assert.deepStrictEqual([await taken(), await reserved()], [100, 0])
      await assertSound()
    })
  }

  races({
    start: async (env) => {
      const database = await freshDatabase(18)
      const servers = await Promise.all([1, 2].map(() => startServer({ env: { ...env, DATABASE_URL: database } }))) as [
        Server,
        Server
      ]
      return {
        database,
        servers,
        stop: () => Promise.all(servers.slice(0, dead ? 1 : 2).map((server) => server.stop()))
      }
    },
    abreast: 2
  }, aDeath)
})
