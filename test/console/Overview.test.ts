import { meanOf } from "#interfaces/operator/NodeSampler"
import { addSeries, type NodeReport, nodeShown, type Series, totalsOf } from "#interfaces/operator/Overview"
import { assert, describe, it } from "@effect/vitest"

const AT = "2026-11-22T09:00:00.000Z"

const series = (sends: ReadonlyArray<number | null>): Series => ({
  every_seconds: 1,
  ends_at: AT,
  sends,
  pushes: [],
  requests: [],
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
  cpu_percent: 3,
  memory_bytes: 4,
  lag_ms: 5,
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
      sockets: []
    })
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
    const sample = { sends: 1, pushes: 2, requests: 3, sockets: 4, cpuPercent: 5, memoryBytes: 6, lagMs: 7 }
    const mean = meanOf([sample, { ...sample, sends: 3, lagMs: 90, sockets: 5 }])
    assert.deepInclude(mean, { sends: 2, lagMs: 90, sockets: 5, pushes: 2 })
  })
})
