import { BodyLimit, bodyWithFile, Probe, RawBody, smallBody } from "#infrastructure/http/EndpointOptions"
import { pathOf } from "#infrastructure/http/RequestPath"
import { endpointsOf, makeRouteTable } from "#infrastructure/http/RouteTable"
import type { Settings } from "#infrastructure/platform/Config"
import { NO_ROUTE } from "#infrastructure/platform/Metrics"
import { assert, describe, it } from "@effect/vitest"
import { Context } from "effect"
import type { HttpRouter } from "effect/http"
import { HttpApi, HttpApiEndpoint, HttpApiGroup } from "effect/http-api"

class TestApi extends HttpApi.make("test").add(
  HttpApiGroup.make("things")
    .add(HttpApiEndpoint.get("one", "/api/things/:id"))
    .add(HttpApiEndpoint.post("make", "/api/things").annotate(BodyLimit, smallBody))
    .add(HttpApiEndpoint.put("picture", "/api/things/:id/picture").annotate(RawBody, 1_000))
    .add(HttpApiEndpoint.get("alive", "/alive").annotate(Probe, true))
    .add(HttpApiEndpoint.post("call", "/rpc"))
    .add(HttpApiEndpoint.post("join", "/rpc/join").annotate(BodyLimit, smallBody))
    .add(HttpApiEndpoint.post("inside", "/hidden/inside").annotate(BodyLimit, smallBody))
) {}

const settings = { LIMITS_BODY_BYTES: 1_000_000 } as Settings

/** A table with the routes of TestApi. */
const table = () => {
  const endpoints = endpointsOf(TestApi)
  const under = (prefix: string) => (path: string) => path.startsWith(prefix)
  const made = makeRouteTable(settings, endpoints, [
    { includes: under("/api"), cors: { allowOrigin: () => "*", requestHeaders: "" } },
    { includes: under("/rpc"), annotations: Context.make(BodyLimit, bodyWithFile) },
    { includes: under("/hidden"), hiddenAs: "/hidden/" }
  ])
  for (const { method, path } of endpoints) made.add(method, path as HttpRouter.PathInput)
  return made
}

const find = (method: string, target: string) => table().find(method, target, pathOf(target)).handler

describe("the route of a request", () => {
  it("has the options of its endpoint, and otherwise those of its protocol", () => {
    const limits = [["POST", "/api/things"], ["POST", "/rpc"], ["POST", "/rpc/join"], ["GET", "/alive"]] as const
    assert.deepStrictEqual(limits.map(([method, path]) => find(method, path).maxBodyBytes), [
      16_384,
      1_500_000,
      16_384,
      1_000_000
    ])
    assert.strictEqual(find("PUT", "/api/things/7/picture").rawBody, 1_000)
    assert.isUndefined(find("POST", "/api/things").rawBody)
  })

  it("is found whatever the case, the slashes, the query and the host of its target", () => {
    for (const target of ["/API/Things/7", "//api//things/7/", "/api/things/7?limit=1", "http://host/api/things/7"])
      assert.strictEqual(find("GET", target).template, "/api/things/{id}", target)
  })

  it("of HEAD is that of GET", () => {
    const made = table()
    assert.strictEqual(made.find("HEAD", "/alive", "/alive").handler, made.find("GET", "/alive", "/alive").handler)
  })

  it("has no template if no endpoint has its path and method, and keeps the protocol of its path", () => {
    const unknown = find("POST", "/rpc/nothing")
    assert.deepStrictEqual([unknown.template, unknown.maxBodyBytes], [NO_ROUTE, 1_500_000])
    assert.isDefined(find("BREW", "/api/things").protocol?.cors)
    assert.isUndefined(find("GET", "/nothing").protocol)
  })

  it("counts as a probe only for the methods of the endpoint", () => {
    assert.lengthOf(find("GET", "/alive").probes ?? [], 5)
    assert.isUndefined(find("POST", "/alive").probes)
  })

  it("in a hidden protocol has options, but neither a template nor methods", () => {
    const made = table()
    const { handler } = made.find("POST", "/hidden/inside", "/hidden/inside")
    assert.deepStrictEqual([handler.template, handler.maxBodyBytes], [NO_ROUTE, 16_384])
    assert.deepStrictEqual(made.methodsOf("/hidden/inside"), [])
    assert.deepStrictEqual(made.methodsOf("/api/things/7"), ["GET", "HEAD", "OPTIONS"])
  })
})
