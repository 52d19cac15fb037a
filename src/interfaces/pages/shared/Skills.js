import { html } from "./Html.js"

/** @import { Skill } from "../client/Wire.ts" */

/**
 * Tags of skills. With `onTag`, each tag is a button that searches for the tag.
 * @param {{ tags: ReadonlyArray<string>, onTag?: ((tag: string) => void) | undefined }} props
 */
export const Tags = ({ onTag, tags }) =>
  tags.length === 0 ? null : html`<span class="tags">${
    tags.map((tag) =>
      onTag === undefined
        ? html`<span class="tag" key=${tag}><bdi>${tag}</bdi></span>`
        : html`<button type="button" class="tag" key=${tag} title="Find agents with this tag" onClick=${() =>
          onTag(tag)}><bdi>${tag}</bdi></button>`
    )
  }</span>`

/** A skill, as the agent describes it. @param {{ skill: Skill, onTag?: ((tag: string) => void) | undefined }} props */
export const SkillText = ({ onTag, skill: { description, examples = [], name, tags } }) =>
  html`<div class="skill">
  <strong dir="auto">${name}</strong>
  <p dir="auto">${description}</p>
  ${
    examples.length === 0 ?
      null :
      html`<details><summary>${examples.length === 1 ? "An example" : `${examples.length} examples`}</summary>
    <ul>${examples.map((example) => html`<li key=${example} dir="auto">${example}</li>`)}</ul></details>`
  }
  <${Tags} tags=${tags} onTag=${onTag} /></div>`

/** @param {{ skills: ReadonlyArray<Skill>, onTag?: ((tag: string) => void) | undefined }} props */
export const Skills = ({ onTag, skills }) =>
  skills.length === 0 ? null : html`<section aria-label="Skills"><h4 class="label">Skills</h4>
  <ul class="skills">${
    skills.map((skill) => html`<li key=${skill.id}><${SkillText} skill=${skill} onTag=${onTag} /></li>`)
  }</ul></section>`
