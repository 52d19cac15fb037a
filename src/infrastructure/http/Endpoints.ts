import { LogThrottle } from "#infrastructure/platform/LogThrottle"
import { READ_MS, Unavailable } from "#infrastructure/wire/WireError"
import { WireErrors } from "#infrastructure/wire/WireErrors"
import { Context, Effect, Layer, Scope } from "effect"
import {
  HttpApi,
  HttpApiBuilder,
  type HttpApiEndpoint,
  type HttpApiGroup,
  type HttpApiMiddleware
} from "effect/http-api"
import { hasReadDeadline } from "./EndpointOptions.ts"

/**
 * Makes a separate API from the group of endpoints of one module, so that the module's handlers do not depend on the
 * other modules. `Api.ts` adds the same group, under the same name, to the whole API.
 */
export const apiOf = <Group extends HttpApiGroup.Constraint>(group: Group) =>
  HttpApi.make("parley").add(group).middleware(WireErrors)

/** Limits the log lines about late reads of all requests in the process. */
const lateReads = new LogThrottle()

const late = Effect.suspend(() =>
  Effect.andThen(
    lateReads.log(
      Effect.logWarning(
        `A read took longer than ${READ_MS} ms, and its request got 503. Check the database.`
      )
    ),
    Effect.fail(new Unavailable())
  )
)

/**
 * Runs an effect in a separate fiber, and fails with `Unavailable` if the effect takes longer than `READ_MS`. The
 * effect is then interrupted, but the caller does not wait until the effect has ended. A statement that was sent keeps
 * its connection until the database responds or the connection is closed. After that the statement's transaction is
 * rolled back.
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

type Handler = (given: object) => Effect.Effect<unknown, unknown>

/** The method of the builder's `Handlers` that adds a handler. */
interface Added {
  readonly handle: (name: string, handler: Handler) => unknown
}

/** Adds handlers to the builder's `Handlers`. The handlers of reads get the deadline of reads. */
class Handlers {
  private readonly group: HttpApiGroup.Top
  private readonly added: Added

  constructor(group: HttpApiGroup.Top, added: Added) {
    this.group = group
    this.added = added
  }

  handle(name: string, handler: Handler): this {
    const endpoint: HttpApiEndpoint.Top | undefined = this.group.endpoints[name]
    const isRead = endpoint !== undefined && hasReadDeadline(endpoint)
    this.added.handle(name, isRead ? (given) => withReadDeadline(handler(given)) : handler)
    return this
  }

  handleAll(handlers: Readonly<Record<string, Handler>>): this {
    for (const [name, handler] of Object.entries(handlers)) this.handle(name, handler)
    return this
  }
}

/**
 * Like `HttpApiBuilder.group`, with the same types, but with the deadline of reads. The builder adds all services with
 * which it is built to the context of each request. With 90 services this costs 8 µs. Therefore the builder gets only
 * the services of the middleware. The handlers got their services when they were built (`SelfContained` in Routing.ts).
 *
 * The outermost middleware of an endpoint must be `WireErrors`, which turns every failure into the response.
 */
export const group: typeof HttpApiBuilder.group = ((
  api: HttpApi.HttpApi<string, HttpApiGroup.Constraint> & { readonly groups: Record<string, HttpApiGroup.Top> },
  identifier: string,
  build: (handlers: Handlers) => Handlers | Effect.Effect<Handlers>
) =>
  Layer.effectContext(Effect.gen(function*() {
    const services = yield* Effect.context<never>()
    const group = api.groups[identifier]!
    const middlewares = Object.values(group.endpoints).flatMap((endpoint: HttpApiEndpoint.Top) => {
      const keys = Array.from(endpoint.middlewares as ReadonlySet<HttpApiMiddleware.AnyService>)
      if (keys.at(-1)?.key !== WireErrors.key)
        throw new Error(`${endpoint.path}: the outermost middleware of an endpoint is WireErrors.`)
      return keys
    })
    const built = HttpApiBuilder.group(
      api as never,
      identifier as never,
      ((added: Added) => {
        const handlers = build(new Handlers(group, added))
        return Effect.isEffect(handlers) ? Effect.as(Effect.provideContext(handlers, services), added) : added
      }) as never
    ) as Layer.Layer<unknown>
    return yield* Effect.updateContext(Layer.build(built), () => Context.pick(...middlewares, Scope.Scope)(services))
  }))) as unknown as typeof HttpApiBuilder.group
