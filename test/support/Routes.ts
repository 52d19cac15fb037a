import { vi } from "@effect/vitest"
import { FindMyWay } from "effect/http"

/** A route of the server, as its routers know it. */
export interface RecordedRoute {
  readonly method: string
  readonly path: string
}

/** Records every route that is added to a router from now on; `stop` ends it. */
export const recordRoutes = () => {
  const routes = new Map<string, RecordedRoute>()
  // Every route of the server is added to a router of this class.
  const prototype = Object.getPrototypeOf(FindMyWay.make()) as FindMyWay.Router<unknown>
  const { on } = prototype
  const spy = vi.spyOn(prototype, "on").mockImplementation(
    function(this: FindMyWay.Router<unknown>, method, path, handler) {
      for (const one of typeof method === "string" ? [method] : method)
        routes.set(`${one} ${path}`, { method: one, path })
      return on.call(this, method, path, handler)
    }
  )
  return { routes: routes as ReadonlyMap<string, RecordedRoute>, stop: () => spy.mockRestore() }
}
