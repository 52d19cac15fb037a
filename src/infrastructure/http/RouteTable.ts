import type { Settings } from "#infrastructure/platform/Config"
import type { Count, HistogramSeries } from "#infrastructure/platform/Meters"
import { httpSeconds, NO_ROUTE, probesOf } from "#infrastructure/platform/Metrics"
import { Context } from "effect"
import { FindMyWay, type HttpRouter } from "effect/http"
import type { HttpApi, HttpApiEndpoint, HttpApiGroup } from "effect/http-api"
import type { IncomingMessage } from "node:http"
import { CORS_METHODS } from "./Cors.ts"
import { BodyLimit, Probe, RawBody } from "./EndpointOptions.ts"
import type { Protocol } from "./Protocol.ts"
import { isRoutable, pathOf } from "./RequestPath.ts"

/** An endpoint with its options. It is an endpoint of an API, or is declared only to set the options of a route. */
export type DeclaredEndpoint = Pick<HttpApiEndpoint.Top, "annotations" | "method" | "path">

/** The endpoints of an API. */
export const endpointsOf = <Id extends string, Groups extends HttpApiGroup.Constraint>(
  api: HttpApi.HttpApi<Id, Groups>
): ReadonlyArray<DeclaredEndpoint> =>
  Object.values(api.groups as unknown as Readonly<Record<string, HttpApiGroup.Top>>).flatMap(({ endpoints }) =>
    Object.values(endpoints)
  )

/**
 * The methods with routes. HEAD uses the routes of GET. A request with another method has no route, and its metrics
 * have the label `other`.
 */
const ROUTED: ReadonlyMap<string, string> = new Map([
  ...["GET", "POST", "PUT", "PATCH", "DELETE"].map((method) => [method, method] as const),
  ["HEAD", "GET"]
])

/**
 * A route of the server with its options, which are resolved with the settings. All paths without a route that belong
 * to the same protocol share one KnownRoute. All other paths without a route share another KnownRoute.
 */
export class KnownRoute {
  readonly protocol: Protocol | undefined
  /**
   * The template of the route's path, or `NO_ROUTE`. Metrics use the template as a label, because a path may contain
   * handles.
   */
  readonly template: string
  readonly maxBodyBytes: number
  readonly rawBody: RawBody | undefined
  /** The counters of the probes of this route; `undefined` if the route is not for probes. */
  readonly probes: ReadonlyArray<Count> | undefined
  /** The route itself, if it may run on the fast path (FastPath.ts). */
  readonly fast: HttpRouter.Route<unknown, unknown> | undefined
  readonly #seconds = new Map<string, HistogramSeries>()

  constructor(
    config: Settings,
    protocol: Protocol | undefined,
    given: {
      readonly path?: string
      readonly annotations?: Context.Context<never> | undefined
      readonly route?: HttpRouter.Route<unknown, unknown> | undefined
    } = {}
  ) {
    const options = Context.merge(protocol?.annotations ?? Context.empty(), given.annotations ?? Context.empty())
    const shown = protocol?.hiddenAs === undefined ? given : {}
    this.protocol = protocol
    this.template = shown.path?.replace(/:(\w+)/g, "{$1}") ?? NO_ROUTE
    this.maxBodyBytes = Context.get(options, BodyLimit)(config)
    this.rawBody = Context.get(options, RawBody)
    this.probes = Context.get(options, Probe) ? probesOf(this.template) : undefined
    this.fast = shown.route
  }

  /** Records how long a request took. */
  observe(method: string | undefined, ms: number): void {
    const label = ROUTED.get(method ?? "") ?? "other"
    let seconds = this.#seconds.get(label)
    if (seconds === undefined) this.#seconds.set(label, seconds = httpSeconds.at(label, this.template))
    seconds.millis(ms)
  }
}

/** The route of a request, with the parameters of its path and its query. */
export type Found = FindMyWay.FindResult<KnownRoute>

/** The routes of a server by method and path. A request is looked up once, before its body is read. */
export interface RouteTable {
  /** Adds a route. If `route` is omitted, only Effect's router runs the route. */
  readonly add: (method: string, path: HttpRouter.PathInput, route?: HttpRouter.Route<unknown, unknown>) => void
  /** Returns the route of a request with this target. `path` is the path of the target. */
  readonly find: (method: string | undefined, target: string, path: string) => Found
  /** Whether the server hides which endpoint a request would reach (`Protocol.hiddenAs`). */
  readonly isHidden: (request: IncomingMessage) => boolean
  /**
   * Returns the methods for which the target has routes, for responses with 405 and to OPTIONS. Routes of a hidden
   * protocol do not count.
   */
  readonly methodsOf: (target: string) => ReadonlyArray<string>
}

/** Makes a table without routes. The annotations of `endpoints` are the options of the routes that are added. */
export const makeRouteTable = (
  config: Settings,
  endpoints: ReadonlyArray<DeclaredEndpoint>,
  protocols: ReadonlyArray<Protocol>
): RouteTable => {
  const routes = FindMyWay.make<KnownRoute>({ maxParamLength: 16_384 })
  const annotations = new Map(
    endpoints.map((endpoint) => [`${endpoint.method} ${endpoint.path}`, endpoint.annotations])
  )
  const unrouted = (protocol?: Protocol): Found => ({
    handler: new KnownRoute(config, protocol),
    params: {},
    searchParams: {}
  })
  const others = protocols.map((protocol) => ({ protocol, found: unrouted(protocol) }))
  const other = unrouted()
  const added = new Set<string>()
  httpSeconds.at("other", NO_ROUTE)

  const find: RouteTable["find"] = (method, target, path) => {
    const routed = ROUTED.get(method ?? "")
    const found = routed === undefined || !isRoutable(target) ? undefined : routes.find(routed, target)
    if (found !== undefined) return found
    for (const { found, protocol } of others) if (protocol.includes(path)) return found
    return other
  }

  return {
    add: (method, path, route) => {
      const key = `${method} ${path}`
      if (method === "*" || added.has(key)) return
      added.add(key)
      const protocol = protocols.find((protocol) => protocol.includes(path))
      routes.on(method, path, new KnownRoute(config, protocol, { path, annotations: annotations.get(key), route }))
    },
    find,
    isHidden: ({ method, url = "/" }) => find(method, url, pathOf(url)).handler.protocol?.hiddenAs !== undefined,
    methodsOf: (target) => {
      if (!isRoutable(target)) return []
      const methods = CORS_METHODS.split(", ").filter((method) => {
        const found = routes.find(method, target)
        return found !== undefined && found.handler.protocol?.hiddenAs === undefined
      })
      if (methods.length === 0) return methods
      if (methods.includes("GET")) methods.push("HEAD")
      return [...methods, "OPTIONS"]
    }
  }
}
