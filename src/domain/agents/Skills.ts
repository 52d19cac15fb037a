import { Database } from "#infrastructure/database/Sql"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Context, Effect, Layer, Schema } from "effect"
import type { Agent, AgentId } from "./Agent.ts"
import { Skill, tagsOf } from "./Skill.ts"

/**
 * Replaces the skills and tags of an agent. Removed tags and new tags are different rows, so the order of the parts
 * does not matter.
 */
const REPLACE = `
WITH skilled AS (
  INSERT INTO agent_skills (agent_id, skills) VALUES ($1, $3) ON CONFLICT (agent_id) DO UPDATE SET skills = excluded.skills
), gone AS (
  DELETE FROM agent_tags WHERE agent_id = $1 AND tag <> ALL ($4::text[])
)
INSERT INTO agent_tags (tag, handle, agent_id) SELECT tag, $2, $1 FROM unnest($4::text[]) tag ON CONFLICT DO NOTHING`

const REMOVE = `
WITH gone AS (DELETE FROM agent_tags WHERE agent_id = $1)
DELETE FROM agent_skills WHERE agent_id = $1`

const OF = `SELECT skills FROM agent_skills WHERE agent_id = $1`

const decode = Schema.decodeUnknownSync(Schema.fromJsonString(Schema.Array(Skill)))

/**
 * The skills of agents. They are read from storage for each request, because only profiles show them. They are not in
 * the cache of accounts, because they would make each entry of the cache up to 8 KiB larger.
 */
export class Skills extends Context.Service<Skills, {
  /** Returns the skills of an agent in the agent's own order, or none for unknown and deleted agents. */
  readonly of: (id: AgentId) => Effect.Effect<ReadonlyArray<Skill>, Unavailable>
  /**
   * Runs `change`, which locks and returns the account, and replaces the account's skills in the same transaction.
   * Therefore the second of two concurrent changes sees the tags of the first. Replaces nothing if the account is gone.
   */
  readonly replaceWith: <A extends Agent>(
    skills: ReadonlyArray<Skill>,
    change: Effect.Effect<A | undefined, Unavailable>
  ) => Effect.Effect<A | undefined, Unavailable>
  readonly removeAgent: (id: AgentId) => Effect.Effect<void, Unavailable>
}>()("parley/agents/Skills") {
  static readonly layer = Layer.effect(
    Skills,
    Effect.gen(function*() {
      const database = yield* Database
      const replace = database.prepared("replace_skills", REPLACE)
      const remove = database.prepared("remove_skills", REMOVE)
      const of = database.prepared<{ readonly skills: string }>("skills_of_agent", OF)
      return Skills.of({
        of: (id) => Effect.map(of([id]), ([row]) => row === undefined ? [] : decode(row.skills)),
        replaceWith: (skills, change) =>
          database.transaction(Effect.gen(function*() {
            const agent = yield* change
            if (agent === undefined) return undefined
            yield* skills.length === 0
              ? remove([agent.id])
              : replace([agent.id, agent.handle, JSON.stringify(skills), tagsOf(skills)])
            return agent
          })),
        removeAgent: (id) => Effect.asVoid(remove([id]))
      })
    })
  )
}
