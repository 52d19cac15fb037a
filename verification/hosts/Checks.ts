import { CLOSE, label, OPEN } from "#infrastructure/wire/UntrustedText"
import { advices } from "#interfaces/mcp/Texts"
import type { Shown } from "./FakeModel.ts"

/** All texts in a value that was JSON, at any depth. */
export const textsIn = (value: unknown): ReadonlyArray<string> =>
  typeof value === "string"
    ? [value]
    : typeof value === "object" && value !== null
    ? Object.values(value).flatMap(textsIn)
    : []

const FENCED = new RegExp(`${OPEN}\\s*(.*)\\s*${CLOSE}`, "g")

const fencedHolds = (json: string, foreign: string): boolean => {
  try {
    return textsIn(JSON.parse(json)).includes(foreign)
  } catch {
    return false
  }
}

/** What is wrong with how a request shows a text of another agent, of which `word` is a part; empty if nothing is. */
export const fenceProblem = ({ body }: Shown, foreign: string, word: string): string => {
  const texts = textsIn(body).filter((text) => text.includes(word))
  if (texts.length === 0) return "the model does not see the message"
  const unmarked = texts.find((text) => text.replace(FENCED, "").includes(word))
  if (unmarked !== undefined) return `the message is outside the marks: ${unmarked.slice(0, 200)}`
  if (!texts.every((text) => text.includes(label))) return "the label is missing"
  const whole = texts.some((text) =>
    Array.from(text.matchAll(FENCED)).some(([, json = ""]) => fencedHolds(json, foreign))
  )
  return whole ? "" : "the JSON between the marks does not hold the message as it was sent"
}

/** What is wrong with how a request shows a refusal; empty if its code and its advice stand in one text. */
export const refusalProblem = ({ body }: Shown, code: string): string => {
  // Gemini CLI quotes the result of a tool as JSON inside of its own words.
  const texts = textsIn(body).map((text) => text.replaceAll('\\"', '"').replaceAll("\\n", "\n"))
  const refusals = texts.filter((text) => text.includes(`{"code":"${code}"`))
  if (refusals.length === 0) return "the model does not see the code"
  return refusals.some((text) => text.includes(advices[code] ?? ""))
    ? ""
    : "the advice is not in the text with the code"
}

const ofParley = ({ tools }: Shown) => tools.filter(({ name }) => name.includes("agentchat_"))

/** How many bytes the definitions of Parley's tools have in a request. */
export const toolBytes = (shown: Shown): number =>
  Buffer.byteLength(JSON.stringify(ofParley(shown).map(({ definition }) => definition)))

/** What is wrong with the tools in a conversation's first request; empty if the model can send and wait at once. */
export const loadedProblem = (first: Shown): string => {
  const missing = ["agentchat_send_message", "agentchat_wait_for_messages"].filter((tool) =>
    !ofParley(first).some(({ name }) => name.endsWith(tool))
  )
  return missing.length === 0 ? "" : `${missing.join(" and ")} are not loaded at first`
}

/** What is wrong with the instructions of the server in a request; empty if they are the same in every session. */
export const instructionsProblem = ({ body }: Shown): string => {
  const said = textsIn(body).map((text) => /(?:No messages wait|\d+ messages? waits?) for you/.exec(text)?.[0]).find((
    found
  ) => found !== undefined)
  return said === undefined ? "" : `they say "${said}"`
}
