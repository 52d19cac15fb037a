import { assert, describe, it } from "@effect/vitest"
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { DEPLOY, missingPrometheus, promtool } from "../../test/support/Prometheus.ts"

const RULES = join(DEPLOY, "prometheus/alerts.yml")
/** The names of all alerts in `deploy/prometheus/alerts.yml`. */
const alerts = Array.from(readFileSync(RULES, "utf8").matchAll(/- alert: (\w+)/g), ([, name]) => name!)

/**
 * Series by their selectors, in promtool's notation: one value every 15 s, which is four a minute. `1+2x3` stands for
 * 1 3 5 7. Zeros are `0+0x3`, because `0x3` is a number. `stale` ends a series until its next value.
 */
type Series = Readonly<Record<string, string>>

interface Expectation {
  /** The alert, or undefined for all of them. */
  readonly alert: string | undefined
  readonly minutes: number
  /** How many of its alerts are firing then. */
  readonly firing: number
}

/** Lets promtool play the series, and returns what it complains about. */
const complaints = (series: Series, expected: ReadonlyArray<Expectation>): string => {
  const folder = mkdtempSync(join(tmpdir(), "parley-alerts-"))
  try {
    const file = join(folder, "tests.json")
    const tests = [{
      interval: "15s",
      input_series: Object.entries(series).map(([name, values]) => ({ series: name, values })),
      promql_expr_test: expected.map(({ alert, firing, minutes }) => ({
        expr: `count(ALERTS{alertstate="firing"${alert === undefined ? "" : `,alertname="${alert}"`}})`,
        eval_time: `${minutes * 60}s`,
        exp_samples: firing === 0 ? [] : [{ labels: "{}", value: firing }]
      }))
    }]
    // JSON is YAML, too.
    writeFileSync(file, JSON.stringify({ rule_files: [RULES], evaluation_interval: "15s", tests }))
    const { output, status } = promtool("test", "rules", file)
    return status === 0 ? "" : output
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

/** For each alert: what makes it fire, after how many minutes, and a time at which it must still wait. */
const cases: Readonly<Record<string, { readonly series: Series; readonly waits: number; readonly fires: number }>> = {
  ParleyNodeDown: { series: { 'up{job="parley",instance="a"}': "1x4 0+0x40" }, waits: 1.5, fires: 3 },
  ParleyAnswersFail: {
    series: {
      'http_requests_total{instance="a",status="5xx"}': "0+2x100",
      'http_requests_total{instance="a",status="2xx"}': "0+98x100"
    },
    waits: 4,
    fires: 8
  },
  ParleyNotReady: {
    series: { 'node_ready{instance="a"}': "1x4 0+0x40", 'node_drained{instance="a"}': "0+0x44" },
    waits: 2.5,
    fires: 4
  },
  ParleyDrainForgotten: { series: { 'node_drained{instance="a"}': "1x300" }, waits: 59, fires: 61 },
  ParleyVersionsDiffer: {
    series: {
      'build_info{job="parley",instance="a",version="0.2.0",commit="c1"}': "1x300",
      'build_info{job="parley",instance="b",version="0.3.0",commit="c2"}': "1x300"
    },
    waits: 59,
    fires: 61
  },
  ParleyDiskFills: { series: { 'disk_free_bytes{instance="a",folder="DATA_DIR"}': "5e8x60" }, waits: 4, fires: 6 },
  ParleyBackupOld: {
    series: {
      'backup_age_seconds{instance="a"}': "180000x80",
      'backup_interval_seconds{instance="a"}': "86400x80"
    },
    waits: 9,
    fires: 11
  },
  ParleyBackupsFail: {
    series: { 'backups_total{instance="a",outcome="failed"}': "0 1x120" },
    waits: 15,
    fires: 22
  },
  ParleyDatabaseConnections: {
    series: {
      'database_connections_used{instance="a"}': "92x60",
      'database_connections_bound{instance="a"}': "97x60"
    },
    waits: 4,
    fires: 6
  },
  ParleyCommitsFail: {
    series: {
      'message_commits_failed_total{instance="a",reason="connection"}': "0+1x60",
      'group_message_commits_failed_total{instance="a",reason="connection"}': "0+0x60"
    },
    waits: 1,
    fires: 4
  },
  ParleyCommitsSlow: {
    series: {
      'commit_wait_seconds_bucket{instance="a",queue="message",le="0.1"}': "0+0x100",
      'commit_wait_seconds_bucket{instance="a",queue="message",le="0.5"}': "0+10x100",
      'commit_wait_seconds_bucket{instance="a",queue="message",le="+Inf"}': "0+10x100"
    },
    waits: 9,
    fires: 12
  },
  ParleyQueueFills: {
    series: { 'commit_queue_items{instance="a",queue="message"}': "0+0x3 15000x40" },
    waits: 1.5,
    fires: 3
  },
  ParleyShardsWithoutOwner: {
    series: {
      'effect_cluster_shards{instance="a"}': "150x40",
      'effect_cluster_shards{instance="b"}': "149x40"
    },
    waits: 1.5,
    fires: 3
  },
  ParleyNodesDisagree: {
    series: { 'effect_cluster_runners{instance="a"}': "2x40", 'effect_cluster_runners{instance="b"}': "1x40" },
    waits: 1.5,
    fires: 3
  },
  ParleyConnectionsFull: {
    series: {
      'connections_open{instance="a",port="http"}': "95x60",
      'connections_bound{instance="a",port="http"}': "100x60"
    },
    waits: 4,
    fires: 6
  },
  ParleyEventLoopLate: { series: { 'event_loop_lag_p99_seconds{instance="a"}': "0.5x60" }, waits: 4, fires: 6 },
  ParleyRedisUnchecked: {
    series: { 'rate_limits_alone_total{instance="a",reason="slow"}': "0+3x100" },
    waits: 4,
    fires: 7
  },
  ParleySocketsFlap: {
    series: {
      'socket_reconnects_total{instance="a"}': "0+300x100",
      'sockets_open{instance="a"}': "10x100"
    },
    waits: 9,
    fires: 12
  },
  ParleyWebhooksFail: {
    series: {
      'webhook_attempts_total{instance="a",outcome="timeout"}': "0+3x200",
      'webhook_attempts_total{instance="a",outcome="delivered"}': "0+1x200"
    },
    waits: 14,
    fires: 17
  },
  ParleyMailFails: {
    series: {
      'mail_total{instance="a",outcome="failed"}': "0+1x100",
      'mail_total{instance="a",outcome="sent"}': "5x100"
    },
    waits: 4,
    fires: 7
  },
  ParleyBacklogGrows: { series: { 'backlog_messages{instance="a"}': "200000+100x600" }, waits: 59, fires: 63 },
  ParleyJobsFail: {
    series: { 'jobs_runs_total{instance="a",exported_job="vacuum",outcome="failed"}': "0+1x100" },
    waits: 4,
    fires: 7
  },
  ParleyTransactionIdsOld: {
    series: { 'database_transaction_age{instance="a"}': "1500000000x300" },
    waits: 59,
    fires: 61
  }
}

/** The values of a series, one every 15 s: pairs of a value and how often it comes. */
const values = (...runs: ReadonlyArray<readonly [value: number | "stale", times: number]>): string =>
  runs.flatMap(([value, times]) => Array<string>(times).fill(String(value))).join(" ")

/** What two nodes show while requests of clients go on. `states` are those of the first node. */
const twoNodes = (states: Readonly<Record<string, string>>, length: number): Series => ({
  ...Object.fromEntries(
    ["a", "b"].flatMap((node) => [
      [`up{job="parley",instance="${node}"}`, `1x${length}`],
      [`node_ready{instance="${node}"}`, `1x${length}`],
      [`node_drained{instance="${node}"}`, `0+0x${length}`],
      [`effect_cluster_runners{instance="${node}"}`, `2x${length}`],
      [`effect_cluster_shards{instance="${node}"}`, `150x${length}`],
      [`build_info{job="parley",instance="${node}",version="0.2.0",commit="c1"}`, `1x${length}`],
      [`http_requests_total{instance="${node}",status="2xx"}`, `0+100x${length}`],
      [`http_requests_total{instance="${node}",status="5xx"}`, `0+0x${length}`],
      [`sockets_open{instance="${node}"}`, `1000x${length}`],
      [`socket_reconnects_total{instance="${node}"}`, `0+0x${length}`]
    ])
  ),
  ...states
})

describe.skipIf(missingPrometheus !== "")(`the alerts in deploy/prometheus${missingPrometheus}`, () => {
  it("each has a case here", () => assert.sameMembers(Object.keys(cases), alerts))

  it.each(alerts)("%s fires when it must, and not before", (alert) => {
    const { fires, series, waits } = cases[alert]!
    assert.strictEqual(
      complaints(series, [{ alert, minutes: waits, firing: 0 }, { alert, minutes: fires, firing: 1 }]),
      ""
    )
  })

  const silent = (minutes: ReadonlyArray<number>) =>
    minutes.map((at): Expectation => ({ alert: undefined, minutes: at, firing: 0 }))

  it("are silent while a node is drained for ten minutes", () => {
    const states = {
      'node_ready{instance="a"}': values([1, 20], [0, 40], [1, 20]),
      'node_drained{instance="a"}': values([0, 20], [1, 40], [0, 20]),
      'effect_cluster_shards{instance="a"}': values([150, 20], [0, 40], [150, 20]),
      'effect_cluster_shards{instance="b"}': values([150, 20], [300, 40], [150, 20])
    }
    assert.strictEqual(complaints(twoNodes(states, 80), silent([1, 5, 6, 8, 10, 14, 16, 19])), "")
  })

  it("are silent while nodes are replaced by another version one after the other", () => {
    // Each node is away for 30 s: first the one, and five minutes later the other.
    const states = Object.fromEntries(
      ([["a", 20], ["b", 40]] as const).flatMap(([node, begin]) => {
        const away = (before: number, during: number, after: number) =>
          values([before, begin - 1], [during, 1], ["stale", 2], [after, 78 - begin])
        return [
          [`up{job="parley",instance="${node}"}`, values([1, begin], [0, 2], [1, 78 - begin])],
          [`node_ready{instance="${node}"}`, away(1, 0, 1)],
          [`node_drained{instance="${node}"}`, away(0, 1, 0)],
          [
            `build_info{job="parley",instance="${node}",version="0.2.0",commit="c1"}`,
            values([1, begin], ["stale", 60])
          ],
          [`build_info{job="parley",instance="${node}",version="0.3.0",commit="c2"}`, `_x${begin + 1} 1x${78 - begin}`]
        ]
      })
    )
    const shards = (first: number, second: number) =>
      values(
        [150, 19],
        [first, 1],
        first === 0 ? ["stale", 2] : [300, 2],
        [150, 18],
        [second, 1],
        second === 0 ? ["stale", 2] : [300, 2],
        [150, 37]
      )
    const runners = (first: "stale" | 1, second: "stale" | 1) =>
      values([2, 20], [first, 2], [2, 19], [second, 2], [2, 37])
    const all = {
      ...states,
      'effect_cluster_shards{instance="a"}': shards(0, 300),
      'effect_cluster_shards{instance="b"}': shards(300, 0),
      'effect_cluster_runners{instance="a"}': runners("stale", 1),
      'effect_cluster_runners{instance="b"}': runners(1, "stale")
    }
    assert.strictEqual(complaints(twoNodes(all, 80), silent([1, 5, 5.5, 6, 8, 10, 10.5, 11, 13, 15, 18])), "")
  })
})
