import { Budgets } from "#domain/auth/Budgets"
import { Config } from "#infrastructure/platform/Config"
import { DataDir } from "#infrastructure/platform/disk/DataDir"
import * as AdminSocket from "#interfaces/admin/AdminSocket"
import { answerOf, get, OTHER_VERSION, post } from "#interfaces/admin/ApiCall"
import { CommandLine, ConsoleAuthorization } from "#interfaces/console/ConsoleAuthorization"
import { AuditLog } from "#interfaces/operator/AuditLog"
import { Conflict } from "#interfaces/operator/Conflict"
import { ConsoleAccess } from "#interfaces/operator/ConsoleAccess"
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import { assert, it } from "@effect/vitest"
import { Deferred, Effect, Latch, Layer, Logger } from "effect"
import { HttpRouter, HttpServerRequest, HttpServerResponse } from "effect/http"
import { HttpApi, HttpApiBuilder, HttpApiEndpoint, HttpApiGroup } from "effect/http-api"
import { writeFileSync } from "node:fs"
import { stat } from "node:fs/promises"
import { createServer } from "node:net"
import { join } from "node:path"
import { makeDataDir } from "../support/Server.ts"

/** The socket of a server with these routes. */
const serving = <E>(dataDir: string, routes: Layer.Layer<never, E, HttpRouter.HttpRouter>) =>
  Layer.build(
    AdminSocket.layer(routes).pipe(Layer.provide([DataDir.layerAt(dataDir), NodeHttpServer.layerHttpServices]))
  )

const authorized = Layer.provide(ConsoleAuthorization.layer, [
  Layer.mock(AuditLog)({}),
  Layer.mock(Budgets)({ addressOf: () => "" }),
  Layer.mock(ConsoleAccess)({ list: Effect.succeed([]) }),
  Layer.effect(Config, Config.load)
])

it.live("a change is carried out when its command disconnects, and a handler may end with its command", () =>
  Effect.gen(function*() {
    const dataDir = yield* Effect.promise(makeDataDir)
    const begun = yield* Latch.make()
    const hangUp = yield* Latch.make()
    const ends = { backup: yield* Deferred.make<string>(), change: yield* Deferred.make<string>() }
    const handler = (name: keyof typeof ends, work: Effect.Effect<void>) => () =>
      begun.open.pipe(
        Effect.andThen(work),
        Effect.onExit((exit) => Deferred.succeed(ends[name], exit._tag))
      )
    const api = HttpApi.make("test").add(
      HttpApiGroup.make("commands")
        .add(
          HttpApiEndpoint.post("backup", "/console/api/backup"),
          HttpApiEndpoint.post("change", "/console/api/change")
        )
        .middleware(ConsoleAuthorization)
    )
    const handlers = HttpApiBuilder.group(api, "commands", (handlers) =>
      handlers.handleAll({
        backup: handler("backup", Effect.interruptible(Effect.never)),
        change: handler("change", hangUp.await)
      }))
    yield* serving(
      dataDir,
      HttpApiBuilder.layer(api).pipe(
        Layer.provide(handlers),
        Layer.provide(authorized),
        Layer.provide(NodeHttpServer.layerHttpServices)
      )
    )
    for (const name of ["change", "backup"]) {
      yield* begun.close
      // The end of this race ends the connection.
      yield* Effect.raceFirst(AdminSocket.callServer(dataDir, "ops", post(`/${name}`)), begun.await)
    }
    assert.strictEqual(yield* Deferred.await(ends.backup), "Failure")
    yield* hangUp.open
    assert.strictEqual(yield* Deferred.await(ends.change), "Success")
  }).pipe(Effect.scoped))

it.live("the socket is its user's alone, knows the operator, takes bodies of bounded length, and logs what failed", () =>
  Effect.gen(function*() {
    const dataDir = yield* Effect.promise(makeDataDir)
    const path = join(dataDir, "admin.sock")
    // What a server that was killed has left behind.
    writeFileSync(path, "")
    const log: Array<string> = []
    const call = (name: string, body?: unknown) =>
      Effect.flatMap(
        AdminSocket.callServer(dataDir, "Zoë\n", post(`/${name}`, body)),
        (response) => response === undefined ? Effect.succeed("no server") : answerOf(response, OTHER_VERSION)
      )
    yield* Effect.gen(function*() {
      const handlers = {
        name: CommandLine,
        body: Effect.flatMap(HttpServerRequest.HttpServerRequest, ({ text }) => Effect.orDie(text)),
        refused: Effect.die(new Conflict({ message: "no \u0007" })),
        failed: Effect.die(new Error("a defect"))
      }
      yield* serving(
        dataDir,
        HttpRouter.use((router) =>
          Effect.forEach(Object.entries(handlers), ([name, handler]) =>
            router.add(
              "POST",
              `/console/api/${name}`,
              Effect.map(handler, (told) => HttpServerResponse.jsonUnsafe(told))
            ))
        )
      )
      assert.strictEqual((yield* Effect.promise(() => stat(path))).mode & 0o777, 0o600)
      assert.strictEqual(yield* call("name"), "Zoë\n")
      assert.strictEqual(yield* call("body", "x".repeat(1_000)), `"${"x".repeat(1_000)}"`)
      assert.strictEqual((yield* Effect.flip(call("body", "x".repeat(2_000_000)))).code, "PAYLOAD_TOO_LARGE")
      assert.deepInclude(yield* Effect.flip(call("refused")), { code: "CONFLICT", message: "no \\u{7}" })
      assert.strictEqual((yield* Effect.flip(call("nothing"))).code, "NOT_FOUND")
      assert.deepStrictEqual(log, [])
      assert.strictEqual((yield* Effect.flip(call("failed"))).code, "INTERNAL_ERROR")
      assert.deepStrictEqual(log, ["A request failed"])
    }).pipe(
      Effect.scoped,
      Effect.provide(Logger.layer([Logger.make(({ message }) => void log.push(String(message)))]))
    )
    assert.strictEqual(yield* call("name"), "no server")
    // A server of a version that did not speak HTTP here.
    const older = createServer((socket) => socket.end("{}\n"))
    yield* Effect.acquireRelease(
      Effect.callback<void>((resume) => void older.listen(path, () => resume(Effect.void))),
      () => Effect.sync(() => older.close())
    )
    assert.strictEqual((yield* Effect.flip(AdminSocket.callServer(dataDir, "ops", get("/x")))).message, OTHER_VERSION)
  }).pipe(Effect.scoped))
