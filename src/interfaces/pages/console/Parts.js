import { useState } from "preact/hooks"
import { classes, html } from "../shared/Html.js"
import { textOf } from "./Api.js"

/** The colour of the tag for each state. The tag also shows the name of the state. @type {Record<string, string>} */
const tones = {
  ok: "good",
  ready: "good",
  active: "good",
  closed: "good",
  upheld: "bad",
  open: "warn",
  slow: "warn",
  not_ready: "warn",
  drained: "warn",
  warning: "warn",
  error: "bad",
  restricted: "warn",
  probing: "warn",
  unknown: "warn",
  down: "bad",
  silent: "bad",
  suspended: "bad",
  stops: "bad",
  paused: "bad"
}

/** @param {{ state: string, label?: string }} props */
export const State = ({ label, state }) =>
  html`<span class=${classes("state-tag", tones[state] ?? "plain")}>${label ?? state.replace("_", " ")}</span>`

/**
 * A table that scrolls horizontally if it is too wide, also with the keyboard. A heading that begins with `#` marks a
 * column of numbers.
 * @param {{ label: string, heads: ReadonlyArray<string>, rows: ReadonlyArray<any> | null, empty: string, numbers?: ReadonlyArray<number> }} props
 * `rows` are elements, or null while they are loading.
 */
export const Table = ({ empty, heads, label, rows }) =>
  rows !== null && rows.length === 0
    ? html`<p class="empty">${empty}</p>`
    : html`<div class="table" role="region" aria-label=${label} tabindex="0"><table>
      <thead><tr>${
      heads.map((head) =>
        html`<th scope="col" key=${head} class=${head.startsWith("#") ? "number" : ""}>${head.replace(/^#/, "")}</th>`
      )
    }</tr></thead>
      <tbody>${rows ?? html`<tr><td colspan=${heads.length} class="hint">Reading …</td></tr>`}</tbody></table></div>`

/** How many characters of a text a table shows at first. */
const SHOWN = 120

/**
 * A text in a table. A long text is shortened until the operator presses its button.
 * @param {{ text: string }} props
 */
export const Long = ({ text }) => {
  const [whole, setWhole] = useState(false)
  const characters = [...text]
  if (characters.length <= SHOWN) return html`<bdi>${text}</bdi>`
  return html`<bdi>${whole ? text : `${characters.slice(0, SHOWN).join("").trimEnd()} …`}</bdi>
    <button type="button" class="quiet" aria-expanded=${whole} onClick=${() => setWhole(!whole)}>${
    whole ? "Show less" : "Show all"
  }</button>`
}

/** A list of names and their values. @param {{ of: ReadonlyArray<readonly [name: string, value: any]> }} props */
export const Facts = ({ of }) =>
  html`<dl class="facts wide">${
    of.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)
  }</dl>`

/** @param {{ next: (() => Promise<void>) | null }} props */
export const More = ({ next }) =>
  next === null ? null : html`<p><button type="button" onClick=${() => void next()}>More</button></p>`

/**
 * Runs the actions of an operator, one at a time, and shows the outcome of each action.
 * @returns {{ said: any, act: (run: () => Promise<string | undefined | void>) => Promise<boolean>, busy: boolean }} `act`
 * returns whether the action succeeded.
 */
export const useActions = () => {
  const [state, setState] = useState(
    /** @type {{ busy: boolean, text: string | null, bad: boolean }} */ ({ busy: false, text: null, bad: false })
  )
  return {
    busy: state.busy,
    said: html`<p role="status" aria-live="polite" class=${
      state.text === null ? "unseen" : state.bad ? "problem" : "said"
    }>${state.text}</p>`,
    act: async (run) => {
      setState({ busy: true, text: null, bad: false })
      try {
        setState({ busy: false, text: (await run()) ?? "Done.", bad: false })
        return true
      } catch (error) {
        setState({ busy: false, text: textOf(error), bad: true })
        return false
      }
    }
  }
}

/** @param {{ handle: string | null }} props */
export const AgentLink = ({ handle }) =>
  handle === null ? html`–` : html`<a class="handle" href=${`#/agents/${encodeURIComponent(handle)}`}>@${handle}</a>`

/**
 * A form of filters. Submitting the form, or choosing an option, applies them.
 * @param {{ fields: ReadonlyArray<{ name: string, label: string, options?: ReadonlyArray<readonly [string, string]> }>, value: Record<string, string>, onChange: (value: Record<string, string>) => void }} props
 */
export const Filters = ({ fields, onChange, value }) => {
  const [draft, setDraft] = useState(value)
  return html`<form class="filters" role="search" onSubmit=${(/** @type {Event} */ event) => {
    event.preventDefault()
    onChange(draft)
  }}>
    ${
    fields.map(({ label, name, options }) =>
      html`<label class="field" key=${name}><span>${label}</span>
      ${
        options === undefined
          ? html`<input value=${
            draft[name] ?? ""
          } autocomplete="off" autocapitalize="none" spellcheck=${false} onInput=${(/** @type {any} */ event) =>
            setDraft({ ...draft, [name]: event.currentTarget.value })} />`
          : html`<select value=${draft[name] ?? ""} onChange=${(/** @type {any} */ event) => {
            const next = { ...draft, [name]: event.currentTarget.value }
            setDraft(next)
            onChange(next)
          }}>${options.map(([key, text]) => html`<option value=${key} key=${key}>${text}</option>`)}</select>`
      }</label>`
    )
  }
    <button type="submit">Find</button>
  </form>`
}
