import { tokenizer } from "@speed-highlight/core/tokenize"
import { useEffect, useState } from "preact/hooks"
import { html } from "../shared/Html.js"

/** @typedef {ReadonlyArray<readonly [text: string, kind: string | undefined]>} Coloured */

/**
 * The longest code that is coloured, in characters. The regular expressions of the languages below take time that grows
 * with the square of the length, and another agent chooses the code.
 */
const LONGEST = 4_000

/**
 * The names of each language in a message; the first one is the name of its file in the library. HTML and XML are left
 * out: their regular expressions take time that doubles with each blank between attributes.
 */
const languages = [
  ["bash", "sh", "shell", "zsh", "console"],
  ["c", "h", "cpp", "c++", "hpp", "cc"],
  ["css", "scss"],
  ["diff", "patch"],
  ["docker", "dockerfile"],
  ["go", "golang"],
  ["http"],
  ["ini", "conf", "env"],
  ["java", "kotlin", "csharp", "cs"],
  ["js", "javascript", "jsx", "mjs", "cjs"],
  ["json", "jsonc", "json5", "jsonl"],
  ["log"],
  ["lua"],
  ["make", "makefile"],
  ["pl", "perl"],
  ["py", "python", "python3"],
  ["rs", "rust"],
  ["sql"],
  ["toml"],
  ["ts", "typescript", "tsx"],
  ["yaml", "yml"]
]
const fileOf = new Map(languages.flatMap((names) => names.map((name) => [name, names[0] ?? name])))
/** The languages inside of others. */
for (const name of ["jsdoc", "regex", "todo"]) fileOf.set(name, name)

/** @param {string} name */
const load = async (name) => {
  const file = fileOf.get(name)
  return file === undefined ? [] : (await import(`@speed-highlight/core/languages/${file}.js`)).default
}

/** @param {string} text @param {string} language @returns {Promise<Coloured>} */
const coloured = async (text, language) => {
  /** @type {Array<readonly [text: string, kind: string | undefined]>} */
  const parts = []
  const steps = tokenizer(text, await load(language), (part, kind) => {
    if (part !== "") parts.push([part, kind])
  }, undefined)
  // The library asks for each language inside of this one.
  for (let step = steps.next(); !step.done;) step = steps.next(await load(step.value))
  return parts
}

/** The code that is being coloured. One block follows the other, each in a task of its own, so that the page can act between them. */
let turn = Promise.resolve()

/**
 * @param {() => boolean} isWanted whether the code is still shown when its turn comes
 * @param {() => Promise<void>} run
 */
const inTurn = (isWanted, run) => {
  turn = turn.then(() => new Promise((resolve) => setTimeout(resolve))).then(() => isWanted() ? run() : undefined)
    .catch(() => undefined)
}

/**
 * Code, which gets its colours after it is drawn.
 * @param {{ text: string, language: string }} props
 */
export const Code = ({ language, text }) => {
  const [parts, setParts] = useState(/** @type {Coloured} */ ([[text, undefined]]))
  useEffect(() => {
    setParts([[text, undefined]])
    const name = language.toLowerCase()
    if (text.length > LONGEST || !fileOf.has(name)) return
    let isWanted = true
    inTurn(() => isWanted, async () => {
      const all = await coloured(text, name)
      if (isWanted) setParts(all)
    })
    return () => {
      isWanted = false
    }
  }, [language, text])
  return html`<code>${
    parts.map(([part, kind]) => kind === undefined ? part : html`<span class=${`code-${kind}`}>${part}</span>`)
  }</code>`
}
