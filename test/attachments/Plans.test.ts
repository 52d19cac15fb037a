import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { AvatarsRepo } from "../../src/agents/AvatarsRepo.ts"
import { AttachmentsRepo } from "../../src/attachments/AttachmentsRepo.ts"
import { Database } from "../../src/platform/Sql.ts"
import { layerPostgresTest } from "../support/Databases.ts"

interface Node {
  readonly "Node Type": string
  readonly "Relation Name"?: string
  readonly "Index Cond"?: string
  readonly Plans?: ReadonlyArray<Node>
}

/** The tables that a plan reads, each with the condition by which it does. */
const scans = (node: Node): ReadonlyArray<string> => {
  const below = (node.Plans ?? []).flatMap(scans)
  const table = node["Relation Name"]
  if (table === undefined || node["Node Type"] === "ModifyTable") return below
  const condition = node["Index Cond"] ?? (node.Plans ?? []).map((plan) => plan["Index Cond"] ?? "").join(" ")
  return [`${table}: ${condition.replace(/[()]|::\w+/g, "")}`, ...below]
}

it.effect("every statement on files and avatars reaches its rows by an index, although planned on empty tables", () =>
  Effect.gen(function*() {
    const sql = yield* SqlClient.SqlClient
    const { driver } = yield* Database
    const texts: Array<string> = []
    const recording = Layer.succeed(Database, {
      driver,
      prepared: (_name, text) => {
        texts.push(text)
        return () => Effect.succeed([])
      }
    })
    yield* Layer.build(Layer.mergeAll(AttachmentsRepo.layer, AvatarsRepo.layer)).pipe(Effect.provide(recording))
    const all = new Set<string>()
    for (const text of texts) {
      const rows = yield* sql.unsafe<{ readonly "QUERY PLAN": ReadonlyArray<{ readonly Plan: Node }> }>(
        `EXPLAIN (GENERIC_PLAN, FORMAT JSON) ${text}`
      )
      for (const scan of scans(rows[0]!["QUERY PLAN"][0]!.Plan)) all.add(scan)
    }
    assert.deepStrictEqual([...all].filter((scan) => !/^\w+: \w/.test(scan)), [])
    assert.includeMembers([...all], ["attachments: look_at <= $1", "attachments: used_at <= $1", "avatars: look_at <= $1", "agents: avatar_key = $1", "groups: avatar_key = $1"])
  }).pipe(Effect.scoped, Effect.provide(layerPostgresTest(18))))
