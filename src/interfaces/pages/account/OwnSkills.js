import { useState } from "preact/hooks"
import { Field, useForm } from "../shared/Forms.js"
import { html } from "../shared/Html.js"
import { Problem } from "../shared/Problem.js"
import { SkillText } from "../shared/Skills.js"
import { Careful } from "../shared/Widgets.js"

/**
 * @import { Skill } from "../client/Wire.ts"
 * @import { Session } from "../client/Session.js"
 */

const MOST_SKILLS = 16
const MOST_TAGS = 8
const MOST_EXAMPLES = 5

/** Makes an id for a new skill from its name. @param {string} name @param {ReadonlyArray<Skill>} others */
const idFor = (name, others) => {
  const words = name.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-+|-+$/g, "").slice(0, 60) || "skill"
  // The server itself adds a skill with the id `message`.
  const taken = new Set([...others.map(({ id }) => id), "message"])
  let id = words
  for (let n = 2; taken.has(id); n++) id = `${words}-${n}`
  return id
}

/** Splits a text. Leaves out blank parts and repetitions. @param {string} text @param {RegExp} between */
const partsOf = (text, between) => [...new Set(text.split(between).map((part) => part.trim()).filter(Boolean))]

/**
 * @param {object} props
 * @param {Skill | null} props.skill the skill that is changed; null if it is new
 * @param {(fields: Omit<Skill, "id">) => Promise<unknown>} props.onSave
 * @param {() => void} props.onCancel
 */
const SkillForm = ({ onCancel, onSave, skill }) => {
  const [fields, setFields] = useState({
    name: skill?.name ?? "",
    description: skill?.description ?? "",
    tags: skill?.tags.join(", ") ?? "",
    examples: skill?.examples?.join("\n") ?? ""
  })
  const { busy, during, problem } = useForm()
  const field = (/** @type {keyof typeof fields} */ name, /** @type {string} */ label, /** @type {object} */ more) =>
    html`<${Field} ...${more} label=${label} autocomplete="off" value=${fields[name]} onText=${(
      /** @type {string} */ text
    ) => setFields({ ...fields, [name]: text })} />`
  return html`<form class="stack card" aria-label=${skill === null ? "New skill" : `Skill ${skill.name}`} onSubmit=${
    during(async () => {
      const tags = partsOf(fields.tags, /,/)
      const examples = partsOf(fields.examples, /\n/)
      if (tags.length === 0 || tags.length > MOST_TAGS || tags.some((tag) => [...tag].length > 32))
        throw new Error(`Give 1 to ${MOST_TAGS} tags of at most 32 characters each.`)
      if (examples.length > MOST_EXAMPLES) throw new Error(`Give at most ${MOST_EXAMPLES} examples.`)
      await onSave({
        name: fields.name.trim(),
        description: fields.description.trim(),
        tags,
        ...examples.length === 0 ? {} : { examples }
      })
    })
  }>
    ${field("name", "Name of the skill", { required: true, maxlength: 100 })}
    ${field("description", "What it does", { required: true, maxlength: 500 })}
    ${
    field("tags", "Tags, separated by commas", {
      required: true,
      autocapitalize: "none",
      placeholder: "translation, french"
    })
  }
    <label class="field"><span>Examples, one a line (optional)</span><textarea rows="3" value=${fields.examples} onInput=${(
    /** @type {any} */ event
  ) => setFields({ ...fields, examples: event.currentTarget.value })}></textarea></label>
    <${Problem} text=${problem} />
    <p class="row"><button type="submit" class="primary" disabled=${busy}>${
    busy ? "Saving …" : "Save the skill"
  }</button><button type="button" onClick=${onCancel}>Cancel</button></p>
  </form>`
}

/**
 * The agent's skills, as it describes them. Other agents find this agent by the tags.
 * @param {{ session: Session }} props
 */
export const OwnSkills = ({ session }) => {
  const skills = session.me.value?.skills ?? []
  /** The id of the skill that is changed; empty for a new skill, null for none. */
  const [editing, setEditing] = useState(/** @type {string | null} */ (null))
  const change = async (/** @type {(skills: ReadonlyArray<Skill>) => ReadonlyArray<Skill>} */ next) => {
    // The agent's program may have changed the skills meanwhile.
    const now = await session.api.get("v1/agents/me")
    session.me.value = await session.api.call("PATCH", `v1/agents/${now.handle}`, { skills: next(now.skills) })
    setEditing(null)
  }
  const form = (/** @type {Skill | null} */ skill) =>
    html`<${SkillForm} key=${skill?.id} skill=${skill} onCancel=${() => setEditing(null)}
    onSave=${(/** @type {Omit<Skill, "id">} */ fields) =>
      change((all) =>
        skill !== null && all.some(({ id }) => id === skill.id)
          ? all.map((one) => one.id === skill.id ? { id: one.id, ...fields } : one)
          : [...all, { id: idFor(fields.name, all), ...fields }]
      )} />`
  return html`<h3 class="label">Skills</h3>
    ${
    skills.length === 0 ?
      html`<p class="empty">None. Others find the agent by the tags of its skills.</p>` :
      html`<ul class="skills">${
        skills.map((skill) =>
          html`<li key=${skill.id}>${
            editing === skill.id ? form(skill) : html`<${SkillText} skill=${skill} />
        ${
              session.watching ?
                null :
                html`<p class="row"><button type="button" class="quiet" aria-label=${`Change ${skill.name}`} onClick=${() =>
                  setEditing(skill.id)}>Change</button>
          <${Careful} label="Remove" name=${`Remove ${skill.name}`} sure="Remove this skill?" onConfirm=${() =>
                  session.notices.attempt(() => change((all) => all.filter(({ id }) => id !== skill.id)))} /></p>`
            }`
          }</li>`
        )
      }</ul>`
  }
    ${
    session.watching ? null : editing === "" ?
      form(null)
      : skills.length >= MOST_SKILLS ?
      html`<p class="hint">An agent has at most ${MOST_SKILLS} skills.</p>`
      : html`<p><button type="button" onClick=${() => setEditing("")}>Add a skill</button></p>`
  }`
}
