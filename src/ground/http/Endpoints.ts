import { Context, Effect, Layer, Option, Redacted, Result, Schema, SchemaIssue } from "effect"
import { HttpRouter, HttpServerRequest, HttpServerResponse } from "effect/http"
import { type HttpApiBuilder, type HttpApiEndpoint, HttpApiError, type HttpApiGroup, HttpApiMiddleware } from "effect/http-api"
import { LogThrottle } from "#ground/platform/LogThrottle"
import { READ_MS, Unavailable } from "#ground/wire/WireError"
import { WireErrors } from "#ground/wire/WireErrors"
import { bearerOf } from "#ground/wire/Bearer"

type Request = HttpServerRequest.HttpServerRequest
type Answered = HttpServerResponse.HttpServerResponse
type Handler = (given: object) => Effect.Effect<unknown, unknown>

/** The service of a group that `HttpApiBuilder.layer` expects. */
interface Served {
  readonly routes: ReadonlyArray<HttpRouter.Route<unknown, unknown>>
  readonly handlers: ReadonlyMap<string, { readonly endpoint: HttpApiEndpoint.Top; readonly handler: Handler }>
}

/** Routes that answer every request with a whole response, and need only the request (see `isFast`). */
const direct = new WeakSet<object>()

/**
 * Whether a route can be run without the router. Such a route answers as behind the router if its context has the request,
 * the parameters of the path and the query.
 */
export const isFast = (route: HttpRouter.Route<unknown, unknown>): boolean => direct.has(route)

/** A route outside the API's description that can be run without the router, because it answers every failure itself. */
export const fastRoute = <R>(
  method: Parameters<typeof HttpRouter.route>[0],
  path: HttpRouter.PathInput,
  handler: Effect.Effect<Answered, never, R>
) => {
  const route = HttpRouter.route(method, path, handler)
  direct.add(route)
  return route
}

/**
 * An annotation of endpoints: `true` gives an endpoint the deadline of reads, `false` takes it from the endpoint. Without the
 * annotation, endpoints with the method GET have the deadline.
 */
export const ReadDeadline = Context.Reference<boolean | undefined>("parley/http/Endpoints/ReadDeadline", { defaultValue: () => undefined })

/** Whether requests to the endpoint are answered with 503 if the database does not answer for `READ_MS` (wire.md C.0, Unavailable). */
export const hasReadDeadline = ({ annotations, method }: HttpApiEndpoint.Top): boolean =>
  Context.get(annotations, ReadDeadline) ?? method === "GET"

/** Limits the log lines about late reads, over all requests of the process. */
const lateReads = new LogThrottle()

const late = Effect.suspend(() =>
  Effect.andThen(
    lateReads.log(Effect.logWarning(`A read took longer than ${READ_MS} ms, and its request was answered with 503. Check the database.`)),
    Effect.fail(new Unavailable())
  ))

/**
 * Runs an effect in a fiber of its own, and fails with `Unavailable` if the effect takes longer than `READ_MS`. The effect is
 * interrupted then, but the caller does not wait until it has ended. A statement that was sent keeps its connection until the
 * database answers or the connection is closed. After that its transaction is rolled back.
 */
export const withReadDeadline = <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E | Unavailable, R> =>
  Effect.withFiber<A, E | Unavailable, R>(({ context }) => {
    const fork = Effect.runForkWith(context as Context.Context<R>)
    const work = fork(effect)
    // Most reads of cached accounts end without waiting.
    const exit = work.pollUnsafe()
    if (exit !== undefined) return exit
    return Effect.callback((resume) => {
      const timer = fork(Effect.sleep(READ_MS))
      timer.addObserver(({ _tag }) => {
        if (_tag === "Failure") return
        // `resume` comes before the interruption, which may end the fiber at once.
        resume(late)
        work.interruptUnsafe()
      })
      work.addObserver((exit) => {
        timer.interruptUnsafe()
        resume(exit)
      })
      return Effect.sync(() => {
        timer.interruptUnsafe()
        work.interruptUnsafe()
      })
    })
  })

/**
 * Replaces `HttpApiBuilder.group`, with the same types, by routes that do less work for each request. Everything that is the
 * same for all requests is prepared here. A request is decoded in one step, and a value is encoded in one step. The services
 * of the handlers are not merged into the context of each request.
 *
 * The API must have `WireErrors` as its outermost middleware, which turns every failure into the response. Bodies are JSON,
 * whatever their content type. A handler of other bytes declares no payload and reads `request`.
 */
export const group: typeof HttpApiBuilder.group = ((
  api: { readonly groups: Record<string, HttpApiGroup.Top> },
  identifier: string,
  build: (handlers: Handlers) => Handlers | Effect.Effect<Handlers>
) =>
  Layer.effectContext(Effect.gen(function*() {
    const group = api.groups[identifier]!
    const built = build(new Handlers(group))
    const handlers = Effect.isEffect(built) ? yield* built : built
    const context = yield* Effect.context<never>()
    const routes = Array.from(handlers.all.values(), ({ endpoint, handler }) => {
      const route = HttpRouter.route(endpoint.method, endpoint.path as HttpRouter.PathInput, servedBy(group, endpoint, handler, context))
      direct.add(route)
      return route
    })
    const served: Served = { routes, handlers: handlers.all }
    return Context.makeUnsafe(new Map([[group.key, served]]))
  }))) as unknown as typeof HttpApiBuilder.group

/** Collects the handlers of a group by the names of their endpoints. */
class Handlers {
  readonly all = new Map<string, { readonly endpoint: HttpApiEndpoint.Top; readonly handler: Handler }>()
  private readonly group: HttpApiGroup.Top

  constructor(group: HttpApiGroup.Top) {
    this.group = group
  }

  handle(name: string, handler: Handler): this {
    const endpoint: HttpApiEndpoint.Top | undefined = this.group.endpoints[name]
    if (typeof handler !== "function") throw new Error(`${name}: handlers with options are not supported.`)
    if (endpoint === undefined) throw new Error(`The group ${this.group.identifier} has no endpoint ${name}.`)
    this.all.set(name, { endpoint, handler })
    return this
  }

  handleAll(handlers: Readonly<Record<string, Handler>>): this {
    for (const [name, handler] of Object.entries(handlers)) this.handle(name, handler)
    return this
  }
}

/** The endpoint's effect for one request: decodes, runs the handler inside the middleware, encodes. */
const servedBy = (
  group: HttpApiGroup.Top,
  endpoint: HttpApiEndpoint.Top,
  handler: Handler,
  context: Context.Context<never>
): Effect.Effect<Answered, unknown, HttpServerRequest.HttpServerRequest> => {
  const decode = decoderOf(endpoint)
  const encode = encoderOf(endpoint)
  const run: Handler = hasReadDeadline(endpoint) ? (given) => withReadDeadline(handler(given)) : handler
  const handle = (context: Context.Context<never>, request: Request, text: string): Effect.Effect<Answered, unknown> => {
    const given = decode({ request, endpoint, group }, context, text)
    return given instanceof HttpApiError.HttpApiSchemaError ? Effect.fail(given) : Effect.flatMap(run(given), encode)
  }
  const handled = Effect.withFiber<Answered, unknown>((fiber) => {
    const request = Context.getUnsafe(fiber.context, HttpServerRequest.HttpServerRequest)
    return endpoint.payload.size === 0
      ? handle(fiber.context, request, "")
      : Effect.flatMapEager(request.text, (text) => handle(fiber.context, request, text))
  })
  return withMiddleware(group, endpoint, handled, context)
}

const schemaError = (kind: HttpApiError.HttpApiSchemaError["kind"], cause: Schema.SchemaError) =>
  new HttpApiError.HttpApiSchemaError({ kind, cause })

type Given = Record<string, unknown>

/** Decodes one part of a request that an endpoint declares into `given`, or returns the error. */
type Part = (given: Given, context: Context.Context<never>, text: string) => HttpApiError.HttpApiSchemaError | undefined

const partOf = (
  kind: "Params" | "Headers" | "Query",
  schema: Schema.Top | undefined,
  read: (context: Context.Context<never>) => unknown
): ReadonlyArray<Part> => {
  if (schema === undefined) return []
  const name = kind.toLowerCase()
  const decode = Schema.decodeUnknownResult(schema as unknown as Schema.ConstraintDecoder<unknown>)
  return [(given, context) => {
    const decoded = decode(read(context))
    if (Result.isFailure(decoded)) return schemaError(kind, decoded.failure)
    given[name] = decoded.success
    return undefined
  }]
}

const payloadOf = (payload: HttpApiEndpoint.PayloadMap): ReadonlyArray<Part> => {
  const [declared, ...others] = payload.values()
  if (declared === undefined) return []
  if (others.length > 0 || declared.encoding._tag !== "Json") throw new Error("The payload of an endpoint is JSON.")
  const schema = Schema.Union(declared.schemas as readonly [Schema.Top, ...Array<Schema.Top>])
  const decode = Schema.decodeUnknownResult(schema as unknown as Schema.ConstraintDecoder<unknown>)
  const whenEmpty = declared.schemas.some((schema) => schema.ast._tag === "Null") ? null : undefined
  const notJson = new Schema.SchemaError(new SchemaIssue.InvalidValue({ message: "Expected a valid JSON body" }))
  return [(given, _context, text) => {
    let json: unknown
    try {
      json = text === "" ? whenEmpty : JSON.parse(text)
    } catch {
      return schemaError("Payload", notJson)
    }
    const decoded = decode(json)
    if (Result.isFailure(decoded)) return schemaError("Payload", decoded.failure)
    given["payload"] = decoded.success
    return undefined
  }]
}

/** Decodes all parts that an endpoint declares, in the order of `HttpApiBuilder`, or returns the error of the first invalid part. */
const decoderOf = (endpoint: HttpApiEndpoint.Top) => {
  const parts = [
    ...partOf("Params", endpoint.params, (context) => Context.getUnsafe(context, HttpRouter.RouteContext).params),
    ...partOf("Headers", endpoint.headers, (context) => Context.getUnsafe(context, HttpServerRequest.HttpServerRequest).headers),
    ...partOf(
      "Query",
      endpoint.query === undefined ? undefined : Schema.toCodecArrayFromSingle(endpoint.query),
      (context) => Context.getUnsafe(context, HttpServerRequest.ParsedSearchParams)
    ),
    ...payloadOf(endpoint.payload)
  ]
  return (given: Given, context: Context.Context<never>, text: string): Given | HttpApiError.HttpApiSchemaError => {
    for (const part of parts) {
      const refused = part(given, context, text)
      if (refused !== undefined) return refused
    }
    return given
  }
}

/** The status that `HttpApiSchema.status` gave a schema. */
const statusOf = (schema: Schema.Top): number => {
  const status = Schema.resolveAnnotations(schema)?.["httpApiStatus"] ?? Schema.resolveAnnotationsKey(schema)?.["httpApiStatus"]
  return typeof status === "number" ? status : 200
}

/** Makes the response from the result of a handler. The first schema of the endpoint that accepts a value encodes it. */
const encoderOf = (endpoint: HttpApiEndpoint.Top) => {
  const schemas = Array.from(endpoint.success, (schema) => ({
    status: statusOf(schema),
    encode: Schema.encodeUnknownResult(schema as unknown as Schema.ConstraintEncoder<unknown>)
  }))
  return (value: unknown): Effect.Effect<Answered, unknown> => {
    if (HttpServerResponse.isHttpServerResponse(value)) return Effect.succeed(value)
    let failure: Schema.SchemaError | undefined
    for (const { encode, status } of schemas) {
      const encoded = encode(value)
      if (Result.isSuccess(encoded)) return Effect.succeed(HttpServerResponse.jsonUnsafe(encoded.success, { status }))
      failure = encoded.failure
    }
    return failure === undefined ? Effect.die(new Error("This endpoint has no answer.")) : Effect.fail(schemaError("Body", failure))
  }
}

/** The options with which a middleware is called. The credential is made only when a middleware reads it. */
class Options {
  readonly group: HttpApiGroup.Top
  readonly endpoint: HttpApiEndpoint.Top
  private readonly request: Request

  constructor(group: HttpApiGroup.Top, endpoint: HttpApiEndpoint.Top, request: Request) {
    this.group = group
    this.endpoint = endpoint
    this.request = request
  }

  get credential(): Redacted.Redacted {
    return Redacted.make(bearerOf(this.request.headers["authorization"]))
  }
}

type Middleware = (handled: Effect.Effect<Answered, unknown>, options: object) => Effect.Effect<Answered, unknown>

/** Wraps a handler in the middleware of its endpoint. The middleware that was added first is the innermost. */
const withMiddleware = (
  group: HttpApiGroup.Top,
  endpoint: HttpApiEndpoint.Top,
  handled: Effect.Effect<Answered, unknown>,
  context: Context.Context<never>
): Effect.Effect<Answered, unknown, HttpServerRequest.HttpServerRequest> => {
  const keys = Array.from(endpoint.middlewares as ReadonlySet<HttpApiMiddleware.AnyService>)
  if (keys.at(-1)?.key !== WireErrors.key) throw new Error(`${endpoint.path}: the outermost middleware of an endpoint is WireErrors.`)
  let wrapped = handled
  for (const key of keys) {
    const service: unknown = Option.getOrThrow(Context.getOption(context as Context.Context<unknown>, key))
    const inner = wrapped
    if (HttpApiMiddleware.isSecurity(key)) {
      const [scheme, ...others] = Object.entries(key.security)
      if (scheme?.[1]._tag !== "Http" || scheme[1].scheme.toLowerCase() !== "bearer" || others.length > 0) {
        throw new Error(`${key.key}: an endpoint is secured by a bearer key.`)
      }
      const secure = (service as Record<string, Middleware>)[scheme[0]]!
      wrapped = Effect.withFiber((fiber) => {
        const request = Context.getUnsafe(fiber.context, HttpServerRequest.HttpServerRequest)
        return secure(inner, new Options(group, endpoint, request))
      })
    } else {
      wrapped = (service as Middleware)(inner, { group, endpoint })
    }
  }
  return wrapped
}
