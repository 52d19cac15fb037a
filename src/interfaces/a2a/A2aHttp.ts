import { AgentSuspended } from "#domain/agents/Agent"
import { makeApiCalls } from "#domain/auth/ApiCalls"
import { Auth } from "#domain/auth/Auth"
import { Budgets } from "#domain/auth/Budgets"
import { uncheckedText } from "#infrastructure/http/BufferedRequest"
import { CORS_REQUEST_HEADERS } from "#infrastructure/http/Cors"
import { BodyLimit, bodyWithFile } from "#infrastructure/http/EndpointOptions"
import { apiOrigins } from "#infrastructure/http/Origins"
import type { Protocol } from "#infrastructure/http/Protocol"
import type { Settings } from "#infrastructure/platform/Config"
import { queryOf } from "#infrastructure/wire/AbsoluteUrl"
import { bearerOf } from "#infrastructure/wire/Bearer"
import { exactId, type InexactNumber, inexactNumber, numberRefused } from "#infrastructure/wire/InexactNumber"
import { MAX_RPC_ID } from "#infrastructure/wire/RpcId"
import { isStorableJson } from "#infrastructure/wire/Text"
import { ValidationFailed } from "#infrastructure/wire/WireError"
import { Context, Effect, Predicate } from "effect"
import { HttpRouter, HttpServerRequest } from "effect/http"
import { PROTOCOL } from "./AgentCard.ts"
import { isCard, isCardOfServer, makeCardRoute, noCardRoutes } from "./AgentCardHttp.ts"
import type { Call } from "./Call.ts"
import { makeEventStream } from "./EventStream.ts"
import {
  A2aFailure,
  a2aRestBody,
  a2aRpcBody,
  type Failure,
  json,
  refusing,
  REST_TYPE,
  restRefusal,
  type RpcId,
  rpcRefusal
} from "./Failure.ts"
import type { Json } from "./Fields.ts"
import { makeOperations, type Streamed } from "./Operations.ts"

const A2A = "/a2a/"

const calls: Protocol = {
  includes: (path) => path.startsWith(A2A),
  refusalBodyOf: (path) => path.includes("/", A2A.length) ? a2aRestBody : (failure) => a2aRpcBody(failure),
  annotations: Context.make(BodyLimit, bodyWithFile)
}

/** The agent cards. Web pages can read the cards if their origin may call `/v1`. */
const cards = (config: Settings): ReadonlyArray<Protocol> => {
  const cors = {
    allowOrigin: apiOrigins(config),
    requestHeaders: `${CORS_REQUEST_HEADERS}, If-None-Match, A2A-Version, A2A-Extensions`,
    responseHeaders: "ETag"
  }
  return [{ includes: isCard, refusalBodyOf: () => a2aRestBody, cors }, { includes: isCardOfServer, cors }]
}

/**
 * Recognizes A2A requests before their routes run (wire.md N). JSON-RPC is at `/a2a/{handle}`, and HTTP+JSON below that
 * path.
 */
export const a2aProtocols = (config: Settings): ReadonlyArray<Protocol> => [...cards(config), calls]

const search = ({ url }: HttpServerRequest.HttpServerRequest): URLSearchParams => queryOf(url)

/**
 * Accepts version 1.0 with any patch number. A request without a version counts as version 0.3 (the specification,
 * 3.6.2).
 */
const checkVersion = (request: HttpServerRequest.HttpServerRequest): Effect.Effect<void, A2aFailure> => {
  const given = request.headers["a2a-version"] ?? search(request).get("A2A-Version") ?? ""
  return /^1\.0(?:\.\d+)?$/.test(given.trim())
    ? Effect.void
    : Effect.fail(
      new A2aFailure(
        "VERSION_NOT_SUPPORTED",
        `This server speaks version ${PROTOCOL}: send the header A2A-Version: ${PROTOCOL}.`,
        {
          supported: PROTOCOL
        }
      )
    )
}

/** Parses a body as JSON. Also returns the first number that parsing would change, if there is one. */
const bodyOf = (
  request: HttpServerRequest.HttpServerRequest
): Effect.Effect<{ readonly body: unknown; readonly inexact: InexactNumber | undefined }, A2aFailure> =>
  Effect.flatMap(uncheckedText(request), (text) => {
    try {
      return Effect.succeed({ body: text === "" ? {} : JSON.parse(text) as unknown, inexact: inexactNumber(text) })
    } catch {
      return Effect.fail(new A2aFailure("PARSE_ERROR", "The body is not valid JSON."))
    }
  })

/** The response of an operation: one object, or a stream of events. */
type Answer = { readonly _tag: "Object"; readonly value: object } | {
  readonly _tag: "Stream"
  readonly streamed: Streamed
  readonly strict: boolean
}
type Method = (call: Call, params: Json) => Effect.Effect<Answer, Failure>

const object = (run: (call: Call, params: Json) => Effect.Effect<object, Failure>): Method => (call, given) =>
  Effect.map(run(call, given), (value) => ({ _tag: "Object", value }))
const stream =
  (run: (call: Call, params: Json) => Effect.Effect<Streamed, Failure>, strict: boolean): Method => (call, given) =>
    Effect.map(run(call, given), (streamed) => ({ _tag: "Stream", streamed, strict }))

/** Splits the last segment of a path at its last colon, for example `msg_1:cancel`. */
const verb = (text: string | undefined): readonly [string, string] => {
  const at = text?.lastIndexOf(":") ?? -1
  return text === undefined || at === -1 ? [text ?? "", ""] : [text.slice(0, at), text.slice(at + 1)]
}

/**
 * The Agent2Agent protocol under `/a2a/{handle}` (wire.md N): the card, JSON-RPC and HTTP+JSON. Both bindings call the
 * same operations, which follow the rules of the API. The server keeps no sessions, so any node can answer any request.
 */
export const A2aHttp = HttpRouter.use((router) =>
  Effect.gen(function*() {
    const auth = yield* Auth
    const budgets = yield* Budgets
    const operations = yield* makeOperations
    const eventStream = yield* makeEventStream
    const app = router.asHttpEffect()
    const params = Effect.map(HttpRouter.params, (given) => given as Readonly<Record<string, string>>)

    /** Authenticates the caller and counts the request against its budget. */
    const identify = Effect.fnUntraced(function*(request: HttpServerRequest.HttpServerRequest) {
      const key = bearerOf(request.headers["authorization"])
      const check = auth.authenticate(key)
      const caller = yield* Effect.catchTag(check, "Unauthorized", () => budgets.unauthorized(request))
      yield* budgets.ofAgent(request, caller.id)
      return { caller, key, api: makeApiCalls(app, request, { agentId: caller.id, check }) }
    })

    const callOf = Effect.fnUntraced(
      function*(
        request: HttpServerRequest.HttpServerRequest
      ): Effect.fn.Return<Call, Failure, HttpRouter.RouteContext> {
        const identified = yield* identify(request)
        if (identified.caller.status === "suspended") return yield* new AgentSuspended()
        return { ...identified, handle: (yield* params)["handle"] ?? "" }
      }
    )

    const methods = {
      SendMessage: object(operations.sendMessage),
      SendStreamingMessage: stream(operations.sendStreamingMessage, false),
      GetTask: object(operations.getTask),
      ListTasks: object(operations.listTasks),
      CancelTask: object(operations.cancelTask),
      SubscribeToTask: stream(operations.subscribeToTask, true),
      CreateTaskPushNotificationConfig: object(operations.createPushConfig),
      GetTaskPushNotificationConfig: object(operations.getPushConfig),
      ListTaskPushNotificationConfigs: object(operations.listPushConfigs),
      DeleteTaskPushNotificationConfig: object(operations.deletePushConfig),
      GetExtendedAgentCard: () =>
        Effect.fail(
          new A2aFailure("UNSUPPORTED_OPERATION", "There is no extended card. The public card has all fields.")
        )
    } satisfies Record<string, Method>

    /**
     * Runs an operation. Refuses params that PostgreSQL cannot store, because every operation passes texts to the
     * database.
     */
    const perform = (method: keyof typeof methods, call: Call, given: Json): Effect.Effect<Answer, Failure> =>
      isStorableJson(given)
        ? methods[method](call, given)
        : Effect.fail(
          new ValidationFailed({
            message: "The request may be nested at most 64 levels deep, and may not contain NUL or a lone surrogate."
          })
        )

    const rpc = Effect.gen(function*() {
      const request = yield* HttpServerRequest.HttpServerRequest
      const state: { id: RpcId } = { id: null }
      return yield* refusing(
        Effect.gen(function*() {
          const call = yield* callOf(request)
          const { body, inexact } = yield* bodyOf(request)
          if (!Predicate.isObject(body))
            return yield* Effect.fail(new A2aFailure("INVALID_REQUEST", "The body is not one JSON-RPC request."))
          const { id, jsonrpc, method } = body
          const given = body["params"] ?? {}
          if (typeof id === "string" && id.length > MAX_RPC_ID) {
            return yield* Effect.fail(
              new A2aFailure("INVALID_REQUEST", `The id must have at most ${MAX_RPC_ID} characters.`)
            )
          }
          if (typeof id === "string" || typeof id === "number")
            state.id = inexact === undefined
              ? id
              : exactId(id) ?? null
          if (inexact !== undefined) {
            const refusal = numberRefused(inexact)
            return yield* Effect.fail(state.id === null ? new A2aFailure("INVALID_REQUEST", refusal.message) : refusal)
          }
          if (jsonrpc !== "2.0" || typeof method !== "string" || state.id === null) {
            return yield* Effect.fail(
              new A2aFailure("INVALID_REQUEST", 'A request needs jsonrpc "2.0", an id and a method.')
            )
          }
          yield* checkVersion(request)
          if (!Object.hasOwn(methods, method)) {
            return yield* Effect.fail(new A2aFailure("METHOD_NOT_FOUND", `There is no method ${method.slice(0, 100)}.`))
          }
          if (!Predicate.isObject(given)) {
            return yield* Effect.fail(new A2aFailure("INVALID_PARAMS", "params must be an object."))
          }
          const answer = yield* perform(method as keyof typeof methods, call, given)
          const enveloped = (result: object) => ({ jsonrpc: "2.0", id: state.id, result })
          return answer._tag === "Object"
            ? json(enveloped(answer.value), 200, "application/json")
            : yield* eventStream(call, answer.streamed, answer.strict, enveloped)
        }),
        (failure) => rpcRefusal(failure, state.id)
      )
    })

    /**
     * A route of HTTP+JSON. Params come from the path and from the query or the body. A param of the path takes
     * precedence.
     */
    const rest = (
      choose: (path: Readonly<Record<string, string>>) => readonly [keyof typeof methods, Json] | undefined
    ) =>
      Effect.gen(function*() {
        const request = yield* HttpServerRequest.HttpServerRequest
        const chosen = choose(yield* params)
        return yield* refusing(
          Effect.gen(function*() {
            const call = yield* callOf(request)
            if (chosen === undefined)
              return yield* Effect.fail(new A2aFailure("METHOD_NOT_FOUND", "The protocol has no such path."))
            yield* checkVersion(request)
            const { body, inexact } = request.method === "GET" || request.method === "DELETE"
              ? { body: Object.fromEntries(search(request)), inexact: undefined }
              : yield* bodyOf(request)
            if (inexact !== undefined)
              return yield* numberRefused(inexact)
            if (!Predicate.isObject(body))
              return yield* Effect.fail(new A2aFailure("INVALID_PARAMS", "The body must be an object."))
            const [method, named] = chosen
            const answer = yield* perform(method, call, { ...body, ...named })
            if (answer._tag === "Stream")
              return yield* eventStream(call, answer.streamed, answer.strict, (event) => event)
            return json(answer.value, 200, REST_TYPE)
          }),
          restRefusal
        )
      })

    const subscribe = rest(({ id }) => {
      const [task, what] = verb(id)
      return what === ""
        ? ["GetTask", { id: task }]
        : what === "subscribe"
        ? ["SubscribeToTask", { id: task }]
        : undefined
    })

    const tasks = "/a2a/:handle/tasks"
    const configs = `${tasks}/:id/pushNotificationConfigs` as const
    yield* router.addAll([
      yield* makeCardRoute(router, identify),
      ...noCardRoutes,
      HttpRouter.route("POST", "/a2a/:handle", rpc),
      HttpRouter.route(
        "POST",
        "/a2a/:handle/:operation",
        rest(({ operation }) =>
          operation === "message:send"
            ? ["SendMessage", {}]
            : operation === "message:stream"
            ? ["SendStreamingMessage", {}]
            : undefined
        )
      ),
      HttpRouter.route("GET", tasks, rest(() => ["ListTasks", {}])),
      HttpRouter.route("GET", "/a2a/:handle/extendedAgentCard", rest(() => ["GetExtendedAgentCard", {}])),
      HttpRouter.route("GET", `${tasks}/:id`, subscribe),
      HttpRouter.route(
        "POST",
        `${tasks}/:id`,
        rest(({ id }) => {
          const [task, what] = verb(id)
          return what === "cancel"
            ? ["CancelTask", { id: task }]
            : what === "subscribe"
            ? ["SubscribeToTask", { id: task }]
            : undefined
        })
      ),
      HttpRouter.route("POST", configs, rest(({ id }) => ["CreateTaskPushNotificationConfig", { taskId: id }])),
      HttpRouter.route("GET", configs, rest(({ id }) => ["ListTaskPushNotificationConfigs", { taskId: id }])),
      HttpRouter.route(
        "GET",
        `${configs}/:config`,
        rest(({ config: own, id }) => ["GetTaskPushNotificationConfig", { taskId: id, id: own }])
      ),
      HttpRouter.route(
        "DELETE",
        `${configs}/:config`,
        rest(({ config: own, id }) => ["DeleteTaskPushNotificationConfig", { taskId: id, id: own }])
      )
    ])
  })
)
