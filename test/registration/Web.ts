import { AccountsApi } from "#domain/accounts/AccountsApi"
import { AccountsHttp } from "#domain/accounts/AccountsHttp"
import { Authorization, AuthorizationEvenSuspended } from "#domain/auth/Authorization"
import { AnonymousBudget, Budgets } from "#domain/auth/Budgets"
import { Idempotency } from "#domain/idempotency/Idempotency"
import { IdempotencyRepo } from "#domain/idempotency/IdempotencyRepo"
import { AddressAttemptsRepo } from "#domain/registration/AddressAttemptsRepo"
import { AddressLimits } from "#domain/registration/AddressLimits"
import { PublicRegistration } from "#domain/registration/PublicRegistration"
import { RegistrationApi } from "#domain/registration/RegistrationApi"
import { RegistrationHttp } from "#domain/registration/RegistrationHttp"
import { LargeReads } from "#infrastructure/concurrency/LargeReads"
import type { Settings } from "#infrastructure/platform/Config"
import { RateLimits } from "#infrastructure/rates/RateLimits"
import { WireErrors } from "#infrastructure/wire/WireErrors"
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import { assert } from "@effect/vitest"
import { Context, Effect, Layer, type Scope } from "effect"
import { HttpEffect, HttpRouter, type HttpServerRequest, type HttpServerResponse } from "effect/http"
import { HttpApi, HttpApiBuilder } from "effect/http-api"
import type { TestDatabase } from "../support/Databases.ts"
import { layerRoom } from "./Module.ts"

/** The modules' part of the contract, so that nothing else must be built. */
class RoomApi extends HttpApi.make("parley").add(RegistrationApi, AccountsApi).middleware(WireErrors) {}

export interface WebAnswer {
  readonly status: number
  readonly headers: Headers
  readonly text: string
  readonly body: Record<string, unknown>
}

export interface WebRequest {
  readonly key?: string
  readonly authorization?: string
  readonly body?: unknown
  /** As the one trusted proxy says. */
  readonly ip?: string
}

/**
 * The modules' routes without a server, on the test's clock. One proxy is trusted, so that a test can come from
 * anywhere.
 */
export class Web extends Context.Service<Web, {
  readonly send: (method: string, path: string, request?: WebRequest) => Effect.Effect<WebAnswer>
}>()("test/registration/Web") {
  static readonly layer = Layer.effect(
    Web,
    Effect.gen(function*() {
      const app: Effect.Effect<
        HttpServerResponse.HttpServerResponse,
        unknown,
        HttpServerRequest.HttpServerRequest | Scope.Scope
      > = yield* HttpRouter.toHttpEffect(
        HttpApiBuilder.layer(RoomApi).pipe(
          Layer.provide(Layer.mergeAll(RegistrationHttp, AccountsHttp)),
          Layer.provide(PublicRegistration.layer),
          Layer.provide(Layer.mergeAll(
            Authorization.layer,
            AuthorizationEvenSuspended.layer,
            AnonymousBudget.layer,
            Idempotency.layer,
            WireErrors.layer
          )),
          Layer.provide(Layer.mergeAll(AddressLimits.layer, Budgets.layer, IdempotencyRepo.layer)),
          Layer.provide(AddressAttemptsRepo.layer),
          Layer.provide(NodeHttpServer.layerHttpServices)
        )
      )
      const handle = HttpEffect.toWebHandlerWith<never, HttpServerRequest.HttpServerRequest | Scope.Scope>(
        yield* Effect.context<never>()
      )(app)
      return Web.of({
        send: (method, path, { authorization, body, ip = "192.0.2.1", key } = {}) =>
          Effect.promise(async () => {
            const headers: Record<string, string> = { "x-forwarded-for": ip }
            const credentials = authorization ?? (key === undefined ? undefined : `Bearer ${key}`)
            if (credentials !== undefined) headers["authorization"] = credentials
            if (body !== undefined) headers["content-type"] = "application/json"
            const request = new Request(`http://parley.example${path}`, {
              method,
              headers,
              ...(body === undefined ? {} : { body: JSON.stringify(body) })
            })
            const response = await handle(request)
            const text = await response.text()
            return { status: response.status, headers: response.headers, text, body: JSON.parse(text) }
          })
      })
    })
  )
}

export const layerWeb = (database: TestDatabase, changes: Partial<Settings> = {}) =>
  Web.layer.pipe(
    Layer.provideMerge(RateLimits.layerMemory),
    Layer.provideMerge(LargeReads.layer),
    Layer.provideMerge(layerRoom(database, { TRUST_PROXY: 1, LIMITS_OTP_ANSWER_MS: 0, ...changes }))
  )

/** Asserts a refusal of exactly this kind, and gives its body. */
export const refused = (answer: WebAnswer, status: number, code: string): Record<string, unknown> => {
  assert.deepStrictEqual([answer.status, answer.body["code"]], [status, code], answer.text)
  assert.isString(answer.body["message"])
  return answer.body
}
