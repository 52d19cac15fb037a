import { AnswerTimeout } from "#infrastructure/database/Sql"
import { layerPg } from "#infrastructure/database/SqlPostgres"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import { once } from "node:events"
import { type AddressInfo, createServer, type Socket } from "node:net"
import { type Duplex } from "node:stream"
import { TLSSocket } from "node:tls"
import { eventually } from "../support/Eventually.ts"

// Of nobody, for this file.
const KEY = `-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgjroIv50DH3kzqZ2h
i5xUKM+99QuKFwA4tlGkB59AE0ihRANCAAS3/aUjHmS5CQxjwv9HOSaiy20Sj3Ap
62hg7sXbHvx4a2Pqmb6DaS4hLMODzBCsOReHBpGdcqndB7PCINYzBBia
-----END PRIVATE KEY-----`
const CERTIFICATE = `-----BEGIN CERTIFICATE-----
MIIBgDCCASWgAwIBAgIUIYgL+ic6t7Tnc47KByFFalRbkOMwCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJbG9jYWxob3N0MCAXDTI2MTEyMjA4MzY1NFoYDzIxMjYxMDI5
MDgzNjU0WjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAAS3/aUjHmS5CQxjwv9HOSaiy20Sj3Ap62hg7sXbHvx4a2Pqmb6DaS4h
LMODzBCsOReHBpGdcqndB7PCINYzBBiao1MwUTAdBgNVHQ4EFgQUDB6xOB8UjLO8
G9Q83f58LbK7xxMwHwYDVR0jBBgwFoAUDB6xOB8UjLO8G9Q83f58LbK7xxMwDwYD
VR0TAQH/BAUwAwEB/zAKBggqhkjOPQQDAgNJADBGAiEAwj8XoDBk9YjterfCa465
5xds6JaqCvXuzS/FbaHOHUMCIQDPz8KXTW14oXJentf5mr8EDF3bkzA4Ynoy20yw
5bcPiA==
-----END CERTIFICATE-----`

const TLS_ASKED = 80_877_103
const AUTHENTICATED_AND_READY = Buffer.from([0x52, 0, 0, 0, 8, 0, 0, 0, 0, 0x5a, 0, 0, 0, 5, 0x49])

/** Takes connections as PostgreSQL does and answers no statement. */
const silentDatabase = Effect.acquireRelease(
  Effect.promise(async () => {
    const sockets = new Set<Socket>()
    /** How each connection that was authenticated has ended. */
    const ends: Array<string> = []
    const greet = (stream: Duplex) => {
      stream.once("data", () => stream.write(AUTHENTICATED_AND_READY))
      stream.once("error", (error: NodeJS.ErrnoException) => ends.push(error.code ?? "error"))
      stream.once("end", () => ends.push("end"))
    }
    const server = createServer((socket) => {
      sockets.add(socket)
      socket.once("data", (first) => {
        if (first.length === 8 && first.readInt32BE(4) === TLS_ASKED) {
          socket.write("S")
          greet(new TLSSocket(socket, { isServer: true, key: KEY, cert: CERTIFICATE }))
        } else {
          greet(socket)
          socket.emit("data", first)
        }
      })
    }).listen(0, "127.0.0.1")
    await once(server, "listening")
    return { server, sockets, ends, port: (server.address() as AddressInfo).port }
  }),
  ({ server, sockets }) =>
    Effect.sync(() => {
      server.close()
      for (const socket of sockets) socket.destroy()
    })
)

describe("a connection whose statement timed out", () => {
  for (const [how, options] of [["plain", ""], ["under TLS", "?sslmode=no-verify"]] as const) {
    it.live(`is reset, ${how}, so that nothing of it arrives any more`, () =>
      Effect.gen(function*() {
        const { ends, port } = yield* silentDatabase
        yield* Effect.gen(function*() {
          const sql = yield* SqlClient.SqlClient
          yield* Effect.flip(sql`SELECT 1`)
          yield* Effect.promise(() => eventually("the reset", () => ends.length > 0 || undefined))
          assert.deepStrictEqual(ends, ["ECONNRESET"])
        }).pipe(
          Effect.provideService(AnswerTimeout, 100),
          Effect.provide(
            layerPg({ url: Redacted.make(`postgres://somebody@127.0.0.1:${port}/some${options}`), poolSize: 1 })
          )
        )
      }).pipe(Effect.scoped))
  }

  it.live("takes the statements that were sent behind it on a pipelined connection along, at once", () =>
    Effect.gen(function*() {
      const { ends, port } = yield* silentDatabase
      yield* Effect.gen(function*() {
        const connection = yield* (yield* SqlClient.SqlClient).reserve
        const first = Effect.provideService(connection.executeRaw("SELECT 1", []), AnswerTimeout, 100)
        const behind = Effect.provideService(connection.executeRaw("SELECT 2", []), AnswerTimeout, 600_000)
        const failures = yield* Effect.all([Effect.flip(first), Effect.flip(behind)], { concurrency: "unbounded" })
        assert.deepStrictEqual(failures.map(({ reason }) => reason._tag), ["ConnectionError", "ConnectionError"])
        yield* Effect.promise(() => eventually("the reset", () => ends.length > 0 || undefined))
        assert.deepStrictEqual(ends, ["ECONNRESET"])
      }).pipe(
        Effect.scoped,
        Effect.provide(
          layerPg({ url: Redacted.make(`postgres://somebody@127.0.0.1:${port}/some`), poolSize: 1, pipeline: true })
        )
      )
    }).pipe(Effect.scoped))
})
