import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { EnforcementRepo } from "../../src/enforcement/EnforcementRepo.ts"
import { Database } from "../../src/platform/Sql.ts"
import { layerPostgresTest } from "../support/Databases.ts"

interface Node {
  readonly "Node Type": string
  readonly "Relation Name"?: string
  readonly "Index Name"?: string
  readonly "Index Cond"?: string
  readonly Plans?: ReadonlyArray<Node>
}

/** The index by which each statement must reach a table, and the columns that it must name. */
const WAYS: Readonly<Record<string, Readonly<Record<string, readonly [string, ...ReadonlyArray<string>]>>>> = {
  enforcement_case: {
    agents: ["agents_pkey", "id"],
    blocks: ["blocks_counted", "blocked_id", "created_at"],
    reports: ["reports_by_target", "reported_id", "created_at"],
    conversations: ["conversations_pkey", "id"],
    recounts: ["recounts_by_agent", "agent_id"]
  },
  enforcement_tally: {
    blocks: ["blocks_counted", "blocked_id", "created_at"],
    reports: ["reports_by_target", "reported_id", "created_at"],
    conversations: ["conversations_pkey", "id"]
  },
  judge_agent: { agents: ["agents_pkey", "id"], recounts: ["recounts_pkey", "no"] },
  suspend_agent: { agents: ["agents_pkey", "id"] },
  restore_agent: { agents: ["agents_pkey", "id"], handovers: ["handovers_pkey", "agent_id"] },
  recounts_due: { recounts: ["recounts_pkey"] },
  dismiss_recounts: { recounts: ["recounts_by_agent", "agent_id"] },
  suspended_since: { agents: ["agents_suspended", "suspended_at"] },
  handovers: { handovers: ["handovers_pkey"] },
  handed_over: { handovers: ["handovers_pkey", "agent_id"] }
}

const scans = (node: Node): ReadonlyArray<Node> => {
  const below = (node.Plans ?? []).flatMap(scans)
  return node["Relation Name"] === undefined || node["Node Type"] === "ModifyTable" ? below : [node, ...below]
}

it.effect("enforcement reaches its rows by their keys, although planned on empty tables", () =>
  Effect.gen(function*() {
    const sql = yield* SqlClient.SqlClient
    const { driver } = yield* Database
    const texts = new Map<string, string>()
    const recording = Layer.succeed(Database, {
      driver,
      prepared: (name, text) => {
        texts.set(name, text)
        return () => Effect.succeed([])
      }
    })
    yield* Layer.build(EnforcementRepo.layer).pipe(Effect.provide(recording))
    assert.sameMembers([...texts.keys()], Object.keys(WAYS))
    const wrong: Array<string> = []
    for (const [name, text] of texts) {
      const rows = yield* sql.unsafe<{ readonly "QUERY PLAN": ReadonlyArray<{ readonly Plan: Node }> }>(
        `EXPLAIN (GENERIC_PLAN, FORMAT JSON) ${text}`
      )
      for (const node of scans(rows[0]!["QUERY PLAN"][0]!.Plan)) {
        const [index, ...columns] = WAYS[name]?.[node["Relation Name"] ?? ""] ?? []
        // A bitmap's index is the node below.
        const by = node["Index Name"] === undefined ? node.Plans?.[0] ?? node : node
        const condition = by["Index Cond"] ?? ""
        if (by["Index Name"] !== index || !columns.every((column) => condition.includes(column))) {
          wrong.push(`${name}: ${node["Relation Name"]} by ${node["Node Type"]} ${by["Index Name"]} (${condition})`)
        }
      }
    }
    assert.deepStrictEqual(wrong, [])
  }).pipe(Effect.scoped, Effect.provide(layerPostgresTest(18))))
