import { codecOf } from "#infrastructure/cluster/EntityRpc"
import { quantile } from "#infrastructure/platform/Meters"
import { durationOf, meanOf, type Sample } from "#interfaces/operator/NodeSampler"
import { addSeries, NodeReport, nodeShown, type Series, totalsOf } from "#interfaces/operator/Overview"
import { assert, describe, it } from "@effect/vitest"

const AT = "2026-11-22T09:00:00.000Z"

const series = (sends: ReadonlyArray<number | null>): Series => ({
  every_seconds: 1,
  ends_at: AT,
  sends,
  pushes: [],
  requests: [],
  errors: [],
  send_p50_ms: [],
  send_p99_ms: [],
  sockets: [],
  cpu_percent: [],
  memory_bytes: [],
  lag_ms: []
})
const report: NodeReport = {
  role: "runner",
  version: "1",
  since: AT,
  reasons: [],
  drained: false,
  shards: 150,
  sockets: 7,
  sends_per_second: 1.5,
  pushes_per_second: null,
  requests_per_second: 2,
  errors_per_second: 0.5,
  send_p50_ms: 3,
  send_p99_ms: 9,
  cpu_percent: 3,
  memory_bytes: 4,
  lag_ms: 5,
  disk_free_bytes: 6,
  logged_warnings: 1,
  logged_errors: 0,
  log_level: "info"
}

describe("the overview", () => {
  it("adds up the histories of nodes from the end; a node that came later has a shorter one", () => {
    const added = addSeries([series([1, 2, 3]), series([10]), series([null, null])], { every_seconds: 1, ends_at: AT })
    assert.deepStrictEqual(added.sends, [1, 2, 13])
    assert.deepStrictEqual(addSeries([series([null]), series([null])], { every_seconds: 1, ends_at: AT }).sends, [null])
    assert.deepStrictEqual(addSeries([], { every_seconds: 60, ends_at: AT }), {
      every_seconds: 60,
      ends_at: AT,
      sends: [],
      pushes: [],
      requests: [],
      errors: [],
      send_p50_ms: [],
      send_p99_ms: [],
      sockets: []
    })
  })

  it("shows the time of sends on the slowest node", () => {
    const slow = { ...series([1, 1]), send_p50_ms: [4, null], send_p99_ms: [90, null] }
    const fast = { ...series([1, 1]), send_p50_ms: [2, 3], send_p99_ms: [20, null] }
    const added = addSeries([slow, fast], { every_seconds: 1, ends_at: AT })
    assert.deepStrictEqual(added.send_p50_ms, [4, 3])
    assert.deepStrictEqual(added.send_p99_ms, [90, null])
    const nodes = [report, { ...report, send_p50_ms: 30, send_p99_ms: null }].map((one) =>
      nodeShown("a:1", true, one, "")
    )
    assert.deepInclude(totalsOf(nodes, AT), { errors_per_second: 1, send_p50_ms: 30, send_p99_ms: 9 })
  })

  it("reads the report of a node of the version before, which knows no errors, no times of sends and no day", () => {
    const { disk_free_bytes: _1, errors_per_second: _2, logged_errors: _3, logged_warnings: _4, ...rest } = report
    const { send_p50_ms: _5, send_p99_ms: _6, ...before } = rest
    const { errors: _7, send_p50_ms: _8, send_p99_ms: _9, ...old } = series([1])
    const { decode } = codecOf(NodeReport)
    const read = decode({ ...before, history: { minute: old, hour: old } })
    assert.deepInclude(read, { disk_free_bytes: null, errors_per_second: null, logged_errors: null, send_p50_ms: null })
    assert.deepInclude(read.history?.minute, { sends: [1], errors: [], send_p50_ms: [] })
    const totals = totalsOf([
      nodeShown("a:1", true, read, ""),
      nodeShown("b:1", false, {
        ...report,
        history: { minute: series([2]), hour: series([2]), day: { ...series([3]), every_seconds: 300 } }
      }, "")
    ], AT)
    assert.deepInclude(totals.history?.day, { sends: [3], every_seconds: 300 })
    assert.deepStrictEqual(totals.history?.minute.sends, [3])
  })

  it("counts a silent node as a node, and adds none of its figures", () => {
    const nodes = [nodeShown("a:1", true, report, ""), nodeShown("b:1", false, undefined, "It hangs.")]
    assert.deepInclude(totalsOf(nodes, AT), {
      nodes: 2,
      silent: 1,
      shards: 150,
      sockets: 7,
      sends_per_second: 1.5,
      pushes_per_second: 0
    })
    assert.deepInclude(nodes[1], { state: "silent", words: "It hangs.", shards: null })
  })

  it("says why a node is not ready, and that a drained one is drained", () => {
    assert.deepInclude(nodeShown("a:1", true, { ...report, reasons: ["No room.", "No time."] }, ""), {
      state: "not_ready",
      words: "No room. No time."
    })
    assert.strictEqual(nodeShown("a:1", true, { ...report, drained: true, reasons: ["Drained."] }, "").state, "drained")
  })

  it("keeps the means and the highest lag of each minute", () => {
    const sample: Sample = {
      sends: 1,
      pushes: 2,
      requests: 3,
      errors: 1,
      durations: [2, 0, 1],
      sockets: 4,
      cpuPercent: 5,
      memoryBytes: 6,
      lagMs: 7
    }
    const mean = meanOf([sample, { ...sample, sends: 3, errors: 0, lagMs: 90, sockets: 5, durations: [0, 4, 0] }])
    assert.deepInclude(mean, { sends: 2, errors: 0.5, lagMs: 90, sockets: 5, pushes: 2 })
    // All sends of the time count alike, whichever second they were in.
    assert.deepStrictEqual(mean.durations, [2, 4, 1])
  })

  it("estimates the time of sends from the buckets, and knows none if there was no send", () => {
    assert.strictEqual(quantile([1, 2, 4], [0, 10, 0, 0], 0.5), 1.5)
    assert.strictEqual(quantile([1, 2, 4], [5, 0, 5, 0], 0.99), 3.96)
    assert.strictEqual(quantile([1, 2, 4], [0, 0, 0, 3], 0.5), 4)
    assert.strictEqual(quantile([1, 2, 4], [0, 0, 0, 0], 0.5), undefined)
    const none: Sample = {
      sends: 0,
      pushes: 0,
      requests: 0,
      errors: 0,
      durations: [0, 0],
      sockets: 0,
      cpuPercent: 0,
      memoryBytes: 0,
      lagMs: 0
    }
    assert.strictEqual(durationOf(none, 0.5), null)
  })
})
