import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { DeletionsRepo } from "../../src/agents/DeletionsRepo.ts"
import { ContactsRepo } from "../../src/contacts/ContactsRepo.ts"
import { MutesRepo } from "../../src/mutes/MutesRepo.ts"
import { Database } from "../../src/platform/Sql.ts"
import { PresenceRepo } from "../../src/presence/PresenceRepo.ts"
import { layerPostgresTest } from "../support/Databases.ts"

interface Node {
  readonly "Node Type": string
  readonly "Relation Name"?: string
  readonly "Index Name"?: string
  readonly "Index Cond"?: string
  readonly Plans?: ReadonlyArray<Node>
}

/** Two columns that two indexes hold serve a look-up by both alike. */
const ANY = ""

/** The index by which each statement must reach a table, and the columns that it must name. */
const WAYS: Readonly<Record<string, Readonly<Record<string, readonly [string, ...ReadonlyArray<string>]>>>> = {
  put_mute: { mutes: ["mutes_pkey", "muter_id"], agents: ["agents_pkey", "id"] },
  all_mutes: { mutes: ["mutes_pkey", "muter_id"] },
  one_mute: { mutes: ["mutes_pkey", "muter_id", "kind", "target_id"], agents: ["agents_pkey", "id"] },
  list_mutes: { mutes: ["mutes_pkey", "muter_id"], agents: ["agents_pkey", "id"] },
  count_mutes: { mutes: ["mutes_pkey", "muter_id"] },
  remove_mute: { mutes: ["mutes_pkey", "muter_id", "kind", "target_id"] },
  remove_own_mutes: { mutes: ["mutes_pkey", "muter_id"] },
  remove_mutes_on: { mutes: [ANY, "target_id"] },
  remove_presence: { presences: ["presences_pkey", "agent_id"] },
  keep_presences: { agents: ["agents_pkey", "id"] },
  // Its own by one column, those with it by the other.
  remove_contacts_of_agent: { contacts: [ANY, "_id = "] },
  due_deletions: { deletions: ["deletions_due", "due_at"] },
  visible_presences: {
    agents: ["agents_handle_key", "handle"],
    presences: ["presences_pkey", "agent_id"],
    contacts: [ANY, "agent_id", "contact_id"],
    blocks: ["blocks_pkey", "agent_id", "blocked_id"]
  },
  kept_presence: { presences: ["presences_pkey", "agent_id"] },
  contact_holders: {
    contacts: ["contacts_by_holder", "contact_id", "agent_id"],
    blocks: ["blocks_pkey", "agent_id", "blocked_id"]
  }
}

const scans = (node: Node): ReadonlyArray<Node> => {
  const below = (node.Plans ?? []).flatMap(scans)
  return node["Relation Name"] === undefined || node["Node Type"] === "ModifyTable" ? below : [node, ...below]
}

it.effect("the statements on mutes and presence reach their rows by their keys, although planned on empty tables", () =>
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
    yield* Layer.build(Layer.mergeAll(ContactsRepo.layer, DeletionsRepo.layer, MutesRepo.layer, PresenceRepo.layer)).pipe(Effect.provide(recording))
    const wrong: Array<string> = []
    for (const [name, ways] of Object.entries(WAYS)) {
      const rows = yield* sql.unsafe<{ readonly "QUERY PLAN": ReadonlyArray<{ readonly Plan: Node }> }>(
        `EXPLAIN (GENERIC_PLAN, FORMAT JSON) ${texts.get(name) ?? assert.fail(name)}`
      )
      const found = scans(rows[0]!["QUERY PLAN"][0]!.Plan)
      for (const [table, [index, ...columns]] of Object.entries(ways)) {
        const reached = found.filter((node) => node["Relation Name"] === table)
        assert.isNotEmpty(reached, `${name}: ${table}`)
        for (const node of reached) {
          // A bitmap's index is the node below.
          const by = node["Index Name"] === undefined ? node.Plans?.[0] ?? node : node
          const condition = by["Index Cond"] ?? ""
          if ((index !== ANY && by["Index Name"] !== index) || !columns.every((column) => condition.includes(column))) {
            wrong.push(`${name}: ${table} by ${node["Node Type"]} ${by["Index Name"]} (${condition})`)
          }
        }
      }
    }
    assert.deepStrictEqual(wrong, [])
  }).pipe(Effect.scoped, Effect.provide(layerPostgresTest(18))))
