import { Effect, Predicate, Schema } from "effect"
import { HttpRouter, HttpServerRequest, HttpServerResponse } from "effect/http"
import { createHash } from "node:crypto"
import { AgentNotFound, AgentSuspended, type Card } from "#domain/agents/Agent"
import { Auth } from "#domain/auth/Auth"
import { Budgets } from "#domain/auth/Budgets"
import type { DirectoryEntry } from "#domain/directory/DirectoryApi"
import { makeApiCalls, path, query } from "#domain/auth/ApiCalls"
import { directRoute } from "#ground/http/Endpoints"
import { Config } from "#ground/platform/Config"
import { publicUrl } from "#ground/platform/PublicUrl"
import { bearerOf } from "#ground/wire/Bearer"
import type { RpcId } from "#ground/wire/A2aErrors"
import { HandleInput } from "#ground/wire/Text"
import { InternalError, isWireFailure, type WireFailure } from "#ground/wire/WireError"
import { failureHeaders } from "#ground/wire/WireErrors"
import { agentCard, PROTOCOL, type Profile } from "./AgentCard.ts"
import { makeEventStream } from "./EventStream.ts"
import { A2aFailure, type Failure, isOfRequest, restError, rpcError, statusOf } from "./Failure.ts"
import { type Call, makeOperations, type Streamed } from "./Operations.ts"
import { type Json } from "./MessageParts.ts"


const headersOf = (failure: Failure): Record<string, string> =>
  failureHeaders({
    code: "",
    message: "",
    status: statusOf(failure),
    retryAfterMs: failure instanceof A2aFailure ? undefined : failure.retryAfterMs
  } satisfies WireFailure)

const REST_TYPE = "application/a2a+json"

const json = (body: object, status: number, contentType: string, headers: Record<string, string> = {}) =>
  HttpServerResponse.text(JSON.stringify(body), { status, contentType, headers })

/** The answer to a refusal over JSON-RPC. Its status is 200, unless the error is about the HTTP request itself. */
const rpcRefusal = (failure: Failure, id: RpcId) =>
  json(rpcError(failure, id), isOfRequest(failure) ? statusOf(failure) : 200, "application/json", headersOf(failure))

const restRefusal = (failure: Failure) => json(restError(failure), statusOf(failure), REST_TYPE, headersOf(failure))

const search = (request: HttpServerRequest.HttpServerRequest): URLSearchParams => new URL(request.url, "http://parley").searchParams

/**
 * The Agent2Agent protocol under `/a2a/{handle}` (wire.md N): the card, JSON-RPC and HTTP+JSON. Both bindings share their operations,
 * which follow the rules of the API. The server keeps no sessions: any node can answer any request.
 */
export const A2aHttp = HttpRouter.use((router) =>
  Effect.gen(function*() {
    const auth = yield* Auth
    const budgets = yield* Budgets
    const config = yield* Config
    const operations = yield* makeOperations
    const eventStream = yield* makeEventStream(operations)
    const app = router.asHttpEffect()
    const params = Effect.map(HttpRouter.params, (given) => given as Readonly<Record<string, string>>)

    const authenticated = (request: HttpServerRequest.HttpServerRequest, key: string) =>
      Effect.catchTag(auth.authenticate(key), "Unauthorized", () => budgets.unauthorized(request))

    /** Authenticates the caller and counts the request against its budget. */
    const callOf = Effect.fnUntraced(function*(request: HttpServerRequest.HttpServerRequest): Effect.fn.Return<Call, Failure, HttpRouter.RouteContext> {
      const key = bearerOf(request.headers["authorization"])
      const caller = yield* authenticated(request, key)
      yield* budgets.ofAgent(request, caller.id)
      if (caller.status === "suspended") return yield* new AgentSuspended()
      const api = makeApiCalls(app, request, { agentId: caller.id, check: auth.authenticate(key) })
      return { caller, key, handle: (yield* params)["handle"] ?? "", api }
    })

    /** Accepts version 1.0 with any patch number. A request without a version counts as version 0.3 (the specification, 3.6.2). */
    const checkVersion = (request: HttpServerRequest.HttpServerRequest): Effect.Effect<void, A2aFailure> => {
      const given = request.headers["a2a-version"] ?? search(request).get("A2A-Version") ?? ""
      return /^1\.0(?:\.\d+)?$/.test(given.trim())
        ? Effect.void
        : Effect.fail(
          new A2aFailure("VERSION_NOT_SUPPORTED", `This server speaks version ${PROTOCOL}: send the header A2A-Version: ${PROTOCOL}.`, {
            supported: PROTOCOL
          })
        )
    }

    type Answer = { readonly _tag: "Object"; readonly value: object } | { readonly _tag: "Stream"; readonly streamed: Streamed; readonly strict: boolean }
    type Method = (call: Call, params: Json) => Effect.Effect<Answer, Failure>

    const one = (run: (call: Call, params: Json) => Effect.Effect<object, Failure>): Method => (call, given) =>
      Effect.map(run(call, given), (value) => ({ _tag: "Object", value }))
    const many = (run: (call: Call, params: Json) => Effect.Effect<Streamed, Failure>, strict: boolean): Method => (call, given) =>
      Effect.map(run(call, given), (streamed) => ({ _tag: "Stream", streamed, strict }))
    const methods = {
      SendMessage: one(operations.sendMessage),
      SendStreamingMessage: many(operations.sendStreamingMessage, false),
      GetTask: one(operations.getTask),
      ListTasks: one(operations.listTasks),
      CancelTask: one(operations.cancelTask),
      SubscribeToTask: many(operations.subscribeToTask, true),
      CreateTaskPushNotificationConfig: one(operations.createPushConfig),
      GetTaskPushNotificationConfig: one(operations.getPushConfig),
      ListTaskPushNotificationConfigs: one(operations.listPushConfigs),
      DeleteTaskPushNotificationConfig: one(operations.deletePushConfig),
      GetExtendedAgentCard: () =>
        Effect.fail(new A2aFailure("UNSUPPORTED_OPERATION", "There is no extended card. The public card has all fields."))
    } satisfies Record<string, Method>

    /** Answers a failure with `refusal`. A defect is logged and answered as an internal error. */
    const refusing = <R>(
      effect: Effect.Effect<HttpServerResponse.HttpServerResponse, Failure, R>,
      refusal: (failure: Failure) => HttpServerResponse.HttpServerResponse
    ) =>
      effect.pipe(
        Effect.catch((failure) => Effect.succeed(refusal(failure))),
        Effect.catchDefect((defect) =>
          isWireFailure(defect)
            ? Effect.succeed(refusal(defect))
            : Effect.as(Effect.logError("A request of /a2a failed", defect), refusal(new InternalError())))
      )

    const bodyOf = (request: HttpServerRequest.HttpServerRequest): Effect.Effect<unknown, A2aFailure> =>
      Effect.flatMap(Effect.orDie(request.text), (text) => {
        try {
          return Effect.succeed(text === "" ? {} : JSON.parse(text) as unknown)
        } catch {
          return Effect.fail(new A2aFailure("PARSE_ERROR", "The body is not valid JSON."))
        }
      })

    const rpc = Effect.gen(function*() {
      const request = yield* HttpServerRequest.HttpServerRequest
      const state: { id: RpcId } = { id: null }
      return yield* refusing(
        Effect.gen(function*() {
          const call = yield* callOf(request)
          const body = yield* bodyOf(request)
          if (!Predicate.isObject(body)) return yield* Effect.fail(new A2aFailure("INVALID_REQUEST", "The body is not one JSON-RPC request."))
          const { id, jsonrpc, method, params: given } = body
          if (typeof id === "string" || typeof id === "number") state.id = id
          if (jsonrpc !== "2.0" || typeof method !== "string" || state.id === null) {
            return yield* Effect.fail(new A2aFailure("INVALID_REQUEST", "A request needs jsonrpc \"2.0\", an id and a method."))
          }
          yield* checkVersion(request)
          if (!Object.hasOwn(methods, method)) {
            return yield* Effect.fail(new A2aFailure("METHOD_NOT_FOUND", `There is no method ${method.slice(0, 100)}.`))
          }
          if (given !== undefined && !Predicate.isObject(given)) {
            return yield* Effect.fail(new A2aFailure("INVALID_PARAMS", "params must be an object."))
          }
          const answer = yield* methods[method as keyof typeof methods](call, given ?? {})
          const enveloped = (result: object) => ({ jsonrpc: "2.0", id: state.id, result })
          return answer._tag === "Object"
            ? json(enveloped(answer.value), 200, "application/json")
            : yield* eventStream(call, answer.streamed, answer.strict, enveloped)
        }),
        (failure) => rpcRefusal(failure, state.id)
      )
    })

    /** A route of HTTP+JSON. Its params come from the query or the body, and from the path, which takes precedence. */
    const rest = (choose: (path: Readonly<Record<string, string>>) => readonly [keyof typeof methods, Json] | undefined) =>
      Effect.gen(function*() {
        const request = yield* HttpServerRequest.HttpServerRequest
        const chosen = choose(yield* params)
        return yield* refusing(
          Effect.gen(function*() {
            const call = yield* callOf(request)
            if (chosen === undefined) return yield* Effect.fail(new A2aFailure("METHOD_NOT_FOUND", "The protocol has no such path."))
            yield* checkVersion(request)
            const body = request.method === "GET" || request.method === "DELETE"
              ? Object.fromEntries(search(request))
              : yield* bodyOf(request)
            if (!Predicate.isObject(body)) return yield* Effect.fail(new A2aFailure("INVALID_PARAMS", "The body must be an object."))
            const [method, named] = chosen
            const answer = yield* methods[method](call, { ...body, ...named })
            if (answer._tag === "Stream") return yield* eventStream(call, answer.streamed, answer.strict, (event) => event)
            return json(answer.value, 200, REST_TYPE)
          }),
          restRefusal
        )
      })

    const card = Effect.gen(function*() {
      const request = yield* HttpServerRequest.HttpServerRequest
      const given = (yield* params)["handle"] ?? ""
      return yield* refusing(
        Effect.gen(function*(): Effect.fn.Return<HttpServerResponse.HttpServerResponse, Failure> {
          const handle = yield* Effect.mapError(Schema.decodeUnknownEffect(HandleInput)(given), () => new AgentNotFound())
          if (!/^[a-z0-9-]{3,50}$/.test(handle)) return yield* new AgentNotFound()
          let profile: Profile | undefined
          if (request.headers["authorization"] === undefined) {
            yield* budgets.ofAddress(request)
            // The directory shows the public fields, and neither suspended nor deleted agents.
            const api = makeApiCalls(app, request, undefined)
            const { body } = yield* api.call<{ readonly agents: ReadonlyArray<typeof DirectoryEntry.Encoded> }>(
              "GET",
              "/v1/directory" + query({ q: handle, limit: 1 })
            )
            profile = body.agents.find((agent) => agent.handle === handle)
          } else {
            const key = bearerOf(request.headers["authorization"])
            const { id } = yield* authenticated(request, key)
            yield* budgets.ofAgent(request, id)
            const api = makeApiCalls(app, request, { agentId: id, check: auth.authenticate(key) })
            const { body } = yield* api.call<typeof Card.Encoded>("GET", path`/v1/agents/${handle}`)
            profile = body.status === "suspended" ? undefined : body
          }
          if (profile === undefined) return yield* new AgentNotFound()
          const text = JSON.stringify(agentCard(profile, publicUrl(config)))
          const etag = `"${createHash("sha256").update(text).digest("base64url").slice(0, 22)}"`
          const headers = { etag, "cache-control": "max-age=60" }
          return request.headers["if-none-match"] === etag
            ? HttpServerResponse.empty({ status: 304, headers })
            : HttpServerResponse.text(text, { contentType: "application/json", headers })
        }),
        restRefusal
      )
    })

    const verb = (text: string | undefined): readonly [string, string] => {
      const at = text?.lastIndexOf(":") ?? -1
      return text === undefined || at === -1 ? [text ?? "", ""] : [text.slice(0, at), text.slice(at + 1)]
    }
    const subscribe = rest(({ id }) => {
      const [task, what] = verb(id)
      return what === "" ? ["GetTask", { id: task }] : what === "subscribe" ? ["SubscribeToTask", { id: task }] : undefined
    })

    const tasks = "/a2a/:handle/tasks"
    const configs = `${tasks}/:id/pushNotificationConfigs` as const
    yield* router.addAll([
      directRoute("GET", "/a2a/:handle/.well-known/agent-card.json", card),
      directRoute("POST", "/a2a/:handle", rpc),
      directRoute(
        "POST",
        "/a2a/:handle/:operation",
        rest(({ operation }) =>
          operation === "message:send" ? ["SendMessage", {}] : operation === "message:stream" ? ["SendStreamingMessage", {}] : undefined)
      ),
      directRoute("GET", tasks, rest(() => ["ListTasks", {}])),
      directRoute("GET", "/a2a/:handle/extendedAgentCard", rest(() => ["GetExtendedAgentCard", {}])),
      directRoute("GET", `${tasks}/:id`, subscribe),
      directRoute(
        "POST",
        `${tasks}/:id`,
        rest(({ id }) => {
          const [task, what] = verb(id)
          return what === "cancel" ? ["CancelTask", { id: task }] : what === "subscribe" ? ["SubscribeToTask", { id: task }] : undefined
        })
      ),
      directRoute("POST", configs, rest(({ id }) => ["CreateTaskPushNotificationConfig", { taskId: id }])),
      directRoute("GET", configs, rest(({ id }) => ["ListTaskPushNotificationConfigs", { taskId: id }])),
      directRoute("GET", `${configs}/:config`, rest(({ config: own, id }) => ["GetTaskPushNotificationConfig", { taskId: id, id: own }])),
      directRoute("DELETE", `${configs}/:config`, rest(({ config: own, id }) => ["DeleteTaskPushNotificationConfig", { taskId: id, id: own }]))
    ])
  })
)
