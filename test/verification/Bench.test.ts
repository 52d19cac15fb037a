import { assert, describe, it } from "@effect/vitest"
import type { Measured } from "../../verification/bench/Contender.ts"
import { growth } from "../../verification/bench/DiskUse.ts"
import { HELP, optionsOf, Usage } from "../../verification/bench/Options.ts"
import { svg } from "../../verification/bench/Plot.ts"
import { type Compared, figuresOf, isReached } from "../../verification/bench/Ratios.ts"
import type { Subject } from "../../verification/bench/Rig.ts"
import { EJABBERD, FLOOR } from "../../verification/bench/Scene.ts"
import { median, ratiosOf, spreadOf } from "../../verification/bench/Statistics.ts"
import { isWhole } from "../../verification/bench/Verdict.ts"
import { HALF, ONE_AT_A_TIME, windowsOf } from "../../verification/bench/Window.ts"

const quantiles = (p50: number) => ({ p50, p95: p50 * 2, p99: p50 * 3, max: p50 * 4 })

const measured = (label: string, round: number, server: number, rest: Partial<Measured["cpu"]> = {}): Measured => ({
  label,
  round,
  batch: {},
  crossed: { calls: 0, pushes: 0 },
  seconds: 1,
  accepted: 100,
  perSecond: 1e6 / server,
  framesPerSecond: 2e6 / server,
  toSocket: quantiles(4),
  toAnswer: quantiles(4),
  cpu: {
    server,
    nodes: [server],
    kernel: 0,
    database: undefined,
    redis: undefined,
    balancer: undefined,
    load: 0,
    ...rest
  },
  noise: { others: 0, stolen: 0 },
  refused: {}
})

const outcome = (
  subject: Partial<Subject> | undefined,
  runs: ReadonlyArray<Measured>,
  rest: Partial<Compared> = {}
): Compared => ({
  name: subject === undefined ? FLOOR : JSON.stringify(subject),
  subject: subject === undefined
    ? undefined
    : {
      database: "postgres",
      nodes: 0,
      balancer: undefined,
      stored: 0,
      checkout: { root: "", commit: undefined },
      ...subject
    },
  runs,
  disk: undefined,
  databaseFloor: undefined,
  memory: [],
  verdict: { accepted: 100, stored: 100, delivered: 100, echoed: 100, problems: [] },
  ...rest
})

const LOAD = "64 in flight"
const valuesOf = (outcomes: ReadonlyArray<Compared>, part: string) =>
  figuresOf(outcomes, "ring", LOAD).find(({ what }) => what.includes(part))?.values

describe("the bench's verdict", () => {
  it("is whole only if every accepted message is stored and delivered, and nothing is wrong with one", () => {
    const verdict = { accepted: 5, stored: 5, delivered: 5, echoed: 5, problems: [] }
    assert.isTrue(isWhole(verdict))
    assert.isFalse(isWhole({ ...verdict, stored: 6 }))
    assert.isFalse(isWhole({ ...verdict, stored: 4 }))
    assert.isFalse(isWhole({ ...verdict, delivered: 4 }))
    assert.isFalse(isWhole({ ...verdict, problems: ["message 3 is stored twice"] }))
  })
})

describe("the bench's statistics", () => {
  it("take the middle as the median, or the mean of the two in the middle", () => {
    assert.strictEqual(median([9, 1, 5]), 5)
    assert.strictEqual(median([10, 9, 1, 5]), 7)
    assert.isNaN(median([]))
    assert.deepStrictEqual(spreadOf([3, 1, 2, 10]), { median: 2.5, min: 1, max: 10, count: 4 })
  })

  it("take a ratio within a round, and never from a value of one round only", () => {
    assert.deepStrictEqual(ratiosOf(new Map([[0, 10], [1, 40], [2, 7]]), new Map([[0, 5], [1, 10], [3, 1]])), [2, 4])
    assert.deepStrictEqual(ratiosOf(new Map([[0, 10]]), new Map([[0, 0]])), [])
  })
})

describe("the bench's figures", () => {
  it("hold a server and its database against their floors", () => {
    const floor = outcome(undefined, [measured(LOAD, 0, 50), measured(LOAD, 1, 100)])
    const standalone = outcome(
      {},
      [measured(LOAD, 0, 150, { database: 60 }), measured(LOAD, 1, 200, { database: 90 })],
      { databaseFloor: [30, 20, 40] }
    )
    const outcomes = [floor, standalone]
    assert.deepStrictEqual(valuesOf(outcomes, "against the bare floor"), [3, 2])
    assert.deepStrictEqual(valuesOf(outcomes, "database against its floor"), [2, 3])
    assert.isUndefined(valuesOf([floor, outcome({ database: "pglite" }, standalone.runs)], "against the bare floor"))
  })

  it("hold a server on PostgreSQL against ejabberd, in messages a second and in processor time", () => {
    const ejabberd = { ...outcome(undefined, [measured(LOAD, 0, 400, { database: 100 })]), name: EJABBERD }
    const standalone = outcome({}, [measured(LOAD, 0, 80, { database: 20 })])
    const outcomes = [standalone, outcome({ database: "pglite" }, standalone.runs), ejabberd]
    assert.deepStrictEqual(valuesOf(outcomes, "messages/s against ejabberd"), [5])
    assert.deepStrictEqual(valuesOf(outcomes, "CPU against ejabberd"), [0.2])
    assert.strictEqual(figuresOf(outcomes, "ring", LOAD).filter(({ what }) => what.includes("ejabberd")).length, 2)
  })

  it("count Redis in where nodes are compared, and leave the balancer out", () => {
    const standalone = outcome({}, [measured(LOAD, 0, 60, { database: 40 })])
    const node = outcome({ nodes: 1 }, [measured(LOAD, 0, 80, { database: 40, redis: 30 })])
    const two = outcome({ nodes: 2 }, [measured(LOAD, 0, 200, { database: 80, redis: 20 })])
    const balanced = outcome({ nodes: 2, balancer: "header" }, [
      measured(LOAD, 0, 100, { database: 40, redis: 10, balancer: 500 })
    ])
    const figures = figuresOf([standalone, node, two, balanced], "ring", LOAD)
    assert.deepStrictEqual(figures.filter(({ unit }) => unit === "×").map(({ goal, values }) => [values, goal?.most]), [
      [[1.5], 1.2],
      [[2], 1.3],
      [[1], 1.15]
    ])
  })

  it("hold nodes against as many servers that share nothing, and these against one", () => {
    const node = outcome({ nodes: 1 }, [measured(LOAD, 0, 80, { database: 20 })])
    const two = outcome({ nodes: 2 }, [measured(LOAD, 0, 160, { database: 40 })])
    const apart = outcome({ nodes: 2, apart: true }, [measured(LOAD, 0, 120, { database: 30 })])
    const figures = figuresOf([node, two, apart], "ring", LOAD).filter(({ unit }) => unit === "×")
    assert.deepStrictEqual(figures.map(({ goal, values }) => [values.map((value) => value.toFixed(3)), goal?.most]), [
      [["1.333"], undefined],
      [["2.000"], 1.3],
      [["1.500"], undefined]
    ])
  })

  it("hold a filled database against the same empty one, and a commit against the same at the other", () => {
    const then = { root: "", commit: "abc1234" }
    const runs = (
      server: number
    ) => [measured(LOAD, 0, server, { database: 0 }), measured(ONE_AT_A_TIME, 0, server * 10, { database: 0 })]
    const outcomes = [
      outcome({}, runs(10)),
      outcome({ stored: 1000 }, runs(11)),
      outcome({ checkout: then }, runs(20)),
      outcome({ stored: 1000, checkout: then }, runs(44))
    ]
    const figures = figuresOf(outcomes, "ring", LOAD).filter(({ unit }) => unit === "×")
    assert.deepStrictEqual(
      figures.filter(({ what }) => what.includes("empty")).map(({ values }) => values),
      [[1.1], [1.1], [2.2], [2.2]]
    )
    assert.deepStrictEqual(
      figures.filter(({ what }) => what.includes("CPU against abc1234")).map(({ values }) => values),
      [[0.5], [0.5], [0.25], [0.25]]
    )
    assert.deepStrictEqual(
      figures.filter(({ what }) => what.includes("messages/s against")).map(({ values }) => values),
      [[2], [4]]
    )
  })

  it("are reached by the median, or by each of several where all must", () => {
    const half = figuresOf(
      [outcome({}, [measured(HALF, 0, 10), { ...measured(HALF, 1, 10), toSocket: quantiles(6) }])],
      "ring",
      LOAD
    )
    assert.deepStrictEqual(
      half.filter(({ unit }) => unit === "ms").map((figure) => [figure.values, isReached(figure)]),
      [[[4, 6], false], [[8, 12], true], [[12, 18], true]]
    )
    assert.isTrue(isReached({ what: "", unit: "×", values: [1, 9, 2], goal: { most: 2 } }))
    assert.isFalse(isReached({ what: "", unit: "/s", values: [1, 9, 2], goal: { least: 3 } }))
    assert.isUndefined(isReached({ what: "", unit: "/s", values: [1] }))
  })

  it("tell what a message takes on disk, and in which tables, once there are enough of them", () => {
    const disk = { bytesPerMessage: 700, tables: {} }
    const verdict = { accepted: 10_000, stored: 10_000, delivered: 10_000, echoed: 10_000, problems: [] }
    assert.deepStrictEqual(valuesOf([outcome({}, [], { disk, verdict })], "disk"), [700])
    assert.isUndefined(valuesOf([outcome({}, [], { disk })], "disk"))
    const before = new Map([["messages", 8_192], ["agents", 8_192]])
    const after = new Map([["messages", 408_192], ["agents", 8_192], ["envelopes", 200_000], ["inboxes", 500]])
    assert.deepStrictEqual(growth(before, after, 1_000), {
      bytesPerMessage: 600.5,
      tables: { messages: 400, envelopes: 200 }
    })
  })
})

describe("the bench's options", () => {
  it("are all in its help", () => {
    const told = new Set(Array.from(HELP.matchAll(/^ {2}--([a-z-]+)/gm), ([, name]) => name))
    const options = [
      "driver",
      "nodes",
      "apart",
      "balancer",
      "against",
      "traced",
      "ejabberd",
      "stored",
      "hot",
      "group",
      "http",
      "mcp",
      "alone",
      "half",
      "in-flight",
      "repeat",
      "seconds",
      "warm-up",
      "messages",
      "agents",
      "idle",
      "echo",
      "short",
      "profile",
      "plot",
      "help"
    ]
    assert.deepStrictEqual([...told].toSorted(), options.toSorted())
    assert.isTrue(HELP.split("\n").every((line) => line.length <= 100))
  })

  it("are refused if they contradict each other", () => {
    for (
      const args of [
        "--nodes 1 --driver pglite",
        "--balancer",
        "--nodes 4 --balancer",
        "--hot --group 3",
        "--alone --half",
        "--hot --half",
        "--group 2",
        "--wrong"
      ]
    ) {
      assert.throws(() => optionsOf(args.split(" ")), Usage, undefined, args)
    }
  })

  it("measure PostgreSQL where nodes or a filled database need it, and weigh idle sockets only where nothing is compared", () => {
    assert.deepStrictEqual(optionsOf([]).drivers, ["pglite", "postgres"])
    assert.deepStrictEqual(optionsOf(["--nodes", "1,2"]).drivers, ["postgres"])
    assert.deepStrictEqual(optionsOf(["--stored", "1000"]).drivers, ["postgres"])
    assert.strictEqual(optionsOf([]).idle, 5_000)
    assert.strictEqual(optionsOf(["--against", "main"]).idle, 0)
  })

  it("say which windows a round has", () => {
    const labels = (...args: ReadonlyArray<string>) => windowsOf(optionsOf(args)).map(({ label }) => label)
    assert.deepStrictEqual(labels(), ["64 in flight", "16 in flight", HALF, ONE_AT_A_TIME])
    assert.deepStrictEqual(labels("--alone"), [ONE_AT_A_TIME])
    assert.deepStrictEqual(labels("--half"), ["64 in flight", HALF])
    assert.deepStrictEqual(labels("--hot"), ["64 in flight"])
    assert.deepStrictEqual(labels("--group", "256"), [
      "8 in flight",
      "10 messages/s",
      "25 % of that",
      "50 % of that",
      "75 % of that"
    ])
  })
})

describe("the bench's plot", () => {
  const bars = [{ label: "a < b & c", parts: [10, 30], from: 20, to: 80, note: "5/s" }, {
    label: "d",
    parts: [0, 0],
    from: 0,
    to: 0,
    note: ""
  }]
  const picture = svg([{ title: "CPU", parts: ["server", "database"], bars }])

  it("is a picture in which every bar fits and every text is escaped", () => {
    assert.match(picture, /^<svg xmlns="http:\/\/www\.w3\.org\/2000\/svg" [^>]*>\n/)
    assert.isTrue(picture.endsWith("</svg>\n"))
    assert.include(picture, ">a &lt; b &amp; c</text>")
    assert.notMatch(picture, /NaN|undefined|Infinity/)
    const width = Number(/width="(\d+)"/.exec(picture)?.[1])
    for (const [, x, wide] of picture.matchAll(/<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)"/g))
      assert.isAtMost(Number(x) + Number(wide), width)
  })

  it("draws parts in proportion, and the spread from the least to the most", () => {
    const [first, second] = Array.from(
      picture.matchAll(/width="([\d.]+)" height="14\.0"/g),
      ([, width]) => Number(width)
    )
    assert.approximately(second! / first!, 3, 0.1)
    const [, from, to] = /<path d="M([\d.]+) [\d.]+H([\d.]+)"/.exec(picture) ?? []
    assert.approximately(Number(to) - Number(from), first! * 6, 1)
  })
})
