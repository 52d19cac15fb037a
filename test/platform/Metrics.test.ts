import { Counter, Gauge, Histogram } from "#infrastructure/platform/Meters"
import {
  catalogue,
  countRequest,
  countStored,
  httpSeconds,
  metricsText,
  stored
} from "#infrastructure/platform/Metrics"
import { ProcessMetrics } from "#infrastructure/platform/ProcessMetrics"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { readFileSync } from "node:fs"
import { metric } from "../support/Metrics.ts"
import { PROBES } from "../support/Probes.ts"

const figure = (name: string, labels?: Record<string, string>): number => metric(metricsText(), name, labels)

describe("metrics", () => {
  it("count answers by method and class of status, with labels that callers cannot multiply", () => {
    const count = (method: string, status: string) => figure("http_requests_total", { method, status })
    const before = [count("GET", "2xx"), count("other", "4xx")] as const
    countRequest("GET", 200)
    countRequest("GET", 204)
    countRequest("BREW", 405)
    countRequest("MKCOL", 404)
    countRequest(undefined, 400)
    assert.deepStrictEqual([count("GET", "2xx"), count("other", "4xx")], [before[0] + 2, before[1] + 3])
    assert.notInclude(metricsText(), "BREW")
  })

  it("count stored messages, and no repeated or refused ones", () => {
    const before = [stored.direct.value, stored.group.value, stored.total()] as const
    countStored("direct", [{ _tag: "Stored" }, { _tag: "Replayed" }, { _tag: "Stored" }])
    countStored("group", [{ _tag: "Fenced" }, { _tag: "Stored" }])
    assert.deepStrictEqual([stored.direct.value, stored.group.value, stored.total()], [
      before[0] + 2,
      before[1] + 1,
      before[2] + 3
    ])
  })

  it.effect("show the process as it is at the scrape", () =>
    Effect.gen(function*() {
      const metrics = yield* ProcessMetrics
      metrics.refresh()
      assert.isAbove(figure("process_resident_memory_bytes"), 10_000_000)
      assert.isAtLeast(figure("event_loop_lag_p99_seconds"), 0)
    }).pipe(Effect.provide(ProcessMetrics.layer)))

  it("each has a name, a unit and a meaning of its own, and says what to do where something can be done", () => {
    const all = catalogue.flatMap(({ metrics }) => metrics)
    const names = all.map(({ description }) => description.name)
    assert.deepStrictEqual(names, [...new Set(names)])
    for (const { description: { help, action, name }, kind } of all) {
      assert.match(name, /^[a-z][a-z0-9_]*$/)
      assert.notMatch(help, /[\n|]/, name)
      assert.isTrue(action === "" || action.endsWith("."), `${name}: ${action}`)
      assert.strictEqual(kind === "counter", name.endsWith("_total"), name)
      if (kind === "histogram" && !name.startsWith("effect_")) assert.match(name, /_(?:seconds|size)$/)
      if (name.endsWith("_seconds")) assert.match(help, /seconds/, name)
      if (name.endsWith("_bytes")) assert.match(help, /bytes/, name)
    }
  })
})

it("the dashboard shows no probe among the slowest routes", () => {
  const { panels } = JSON.parse(readFileSync(new URL("../../deploy/grafana/parley.json", import.meta.url), "utf8")) as {
    readonly panels: ReadonlyArray<
      { readonly title: string; readonly targets?: ReadonlyArray<{ readonly expr: string }> }
    >
  }
  const slowest = panels.find(({ title }) => title.startsWith("Request time, by route"))?.targets?.[0]?.expr
  assert.include(slowest, `route!~"${PROBES.join("|")}"`)
})

describe("a meter", () => {
  it("adds up a histogram's buckets, and keeps what is beyond all bounds", () => {
    const sizes = new Histogram({ name: "sizes", help: "h", action: "", labels: { of: undefined } }, [1, 10])
    for (const value of [0.5, 1, 2, 10, 11]) sizes.at('a"b\\c\n').observe(value)
    assert.strictEqual(
      sizes.text(),
      `# HELP sizes h
# TYPE sizes histogram
sizes_bucket{of="a\\"b\\\\c\\n",le="1"} 2
sizes_bucket{of="a\\"b\\\\c\\n",le="10"} 4
sizes_bucket{of="a\\"b\\\\c\\n",le="+Inf"} 5
sizes_sum{of="a\\"b\\\\c\\n"} 24.5
sizes_count{of="a\\"b\\\\c\\n"} 5
`
    )
    assert.deepStrictEqual(sizes.totals, { count: 5, sum: 24.5 })
  })

  it("prints series whose labels are known from the start with zero", () => {
    const counter = new Counter({ name: "c_total", help: "h", action: "", labels: { a: ["x", "y"], b: ["z"] } })
    counter.at("y", "z").add(2)
    assert.include(counter.text(), 'c_total{a="x",b="z"} 0\nc_total{a="y",b="z"} 2\n')
    assert.strictEqual(counter.total, 2)
  })

  it("keeps a bounded number of series, whatever its labels are", () => {
    const counter = new Counter({ name: "many_total", help: "h", action: "", labels: { a: undefined } })
    for (let i = 0; i < 5_000; i++) counter.at(String(i)).add()
    assert.isAtMost(counter.all().length, 501)
    assert.strictEqual(counter.total, 5_000)
  })

  it("reads a gauge when it is printed, adds up its readers, and shows nothing while nothing is measured", () => {
    const gauge = new Gauge({ name: "g", help: "h", action: "" })
    assert.notInclude(gauge.text(), "\ng ")
    let here = 3
    const end = gauge.at().reads(() => here)
    gauge.at().reads(() => undefined)
    gauge.at().reads(() => 4)
    here = 5
    assert.include(gauge.text(), "\ng 9\n")
    assert.strictEqual(gauge.current, 9)
    end()
    assert.strictEqual(gauge.current, 4)
  })

  it("has no path as a label: requests are counted by the template of their route", () => {
    assert.deepStrictEqual(httpSeconds.labelNames, ["method", "route"])
  })
})
