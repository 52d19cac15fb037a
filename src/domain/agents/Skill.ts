import { Name } from "#infrastructure/wire/Name"
import { exactSize } from "#infrastructure/wire/Size"
import { Text } from "#infrastructure/wire/Text"
import { Schema } from "effect"

const MAX_SKILLS = 16
/** How many bytes of JSON all skills of one agent may have together. */
export const MAX_BYTES = 8_192

/** The skill that every agent's A2A card begins with (wire.md N), so no agent's own skill may have this id. */
export const MESSAGE_SKILL = "message"

/** A word by which the directory finds an agent. The comparison is exact and case-sensitive. */
export const Tag = Name(1, 32)

/**
 * One thing that an agent declares it can do (wire.md C.3). The agent writes the texts itself. Skills that were stored
 * before the rule for names existed are shown unchanged, so this schema checks no text.
 */
export const Skill = Schema.Struct({
  id: Schema.String,
  name: Schema.String,
  description: Schema.String,
  tags: Schema.Array(Schema.String),
  examples: Schema.optionalKey(Schema.Array(Schema.String))
}).annotate({ identifier: "Skill" })

export type Skill = typeof Skill.Type

/** A skill as an agent sets it. */
const NewSkill = Schema.Struct({
  id: Schema.String.check(Schema.isPattern(/^[a-z0-9-]{1,64}$/u)),
  name: Name(1, 100),
  description: Text(1, 500),
  tags: Schema.Array(Tag).check(Schema.isMinLength(1), Schema.isMaxLength(8)),
  examples: Schema.optionalKey(Schema.Array(Text(1, 200)).check(Schema.isMaxLength(5)))
}).annotate({ identifier: "NewSkill" })

/** Returns what is wrong with these skills as a whole, or undefined if nothing is. */
const problemOf = (skills: ReadonlyArray<Skill>): string | undefined => {
  const ids = new Set(skills.map(({ id }) => id))
  if (ids.has(MESSAGE_SKILL)) return `must not hold the id ${MESSAGE_SKILL}, which is the server's`
  if (ids.size < skills.length) return "must not hold an id twice"
  return Buffer.byteLength(JSON.stringify(skills)) > MAX_BYTES
    ? `must have at most ${exactSize(MAX_BYTES)} of JSON together`
    : undefined
}

/** All skills of an agent, as a profile update sets them. Unknown fields are dropped before the size is measured. */
export const SkillList = Schema.Array(NewSkill).check(
  Schema.isMaxLength(MAX_SKILLS),
  Schema.makeFilter((skills: ReadonlyArray<Skill>) => problemOf(skills) ?? true)
)

/** The distinct tags of skills, in the order of their first appearance. */
export const tagsOf = (
  skills: ReadonlyArray<Skill>
): ReadonlyArray<string> => [...new Set(skills.flatMap(({ tags }) => tags))]
