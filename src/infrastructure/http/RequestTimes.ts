import type { HistogramSeries } from "#infrastructure/platform/Meters"
import { httpSeconds, NO_ROUTE } from "#infrastructure/platform/Metrics"
import type { FindMyWay } from "effect/http"

type Method = Parameters<FindMyWay.Router<unknown>["find"]>[0]

/**
 * Methods with routes. HEAD has the routes of GET. Requests with another method have no route, and no label of their
 * own.
 */
const ROUTED: ReadonlyMap<string, Method> = new Map<string, Method>([
  ...(["GET", "POST", "PUT", "PATCH", "DELETE"] as const).map((method) => [method, method] as const),
  ["HEAD", "GET"]
])

/**
 * Observes how long requests take, by the template of their route, because their path may hold handles. A path
 * that is a template itself costs one look-up after its first request.
 */
export const makeRequestTimes = (routes: Pick<FindMyWay.Router<{ readonly path: string }>, "find">) => {
  const templateOf = (method: Method, path: string): string | undefined =>
    routes.find(method, path)?.handler.path.replace(/:(\w+)/g, "{$1}")
  const literal = new Map<string, Map<string, HistogramSeries>>()
  const none = httpSeconds.at("other", NO_ROUTE)

  const seriesOf = (method: Method, path: string): HistogramSeries => {
    const template = templateOf(method, path)
    const found = httpSeconds.at(method, template ?? NO_ROUTE)
    if (template === path) {
      let known = literal.get(method)
      if (known === undefined) literal.set(method, known = new Map())
      known.set(path, found)
    }
    return found
  }

  return {
    /** The template of the request's route, or `NO_ROUTE`. */
    routeOf: (method: string | undefined, path: string): string => {
      const routed = ROUTED.get(method ?? "")
      return (routed === undefined ? undefined : templateOf(routed, path)) ?? NO_ROUTE
    },
    observe: (method: string | undefined, path: string, ms: number): void => {
      const routed = ROUTED.get(method ?? "")
      if (routed === undefined) return none.millis(ms)
      ;(literal.get(routed)?.get(path) ?? seriesOf(routed, path)).millis(ms)
    }
  }
}
