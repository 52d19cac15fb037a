/**
 * Something that the switcher offers. `words` are what a person may type for it, besides the label.
 * @typedef {{ readonly key: string, readonly kind: "Conversations" | "People" | "Commands", readonly label: string,
 * readonly note?: string | undefined, readonly words?: string, readonly avatar?: object, readonly run: () => void }} Choice
 */

/** How many choices of each kind are offered. */
const MOST = 8

/**
 * The choices for a typed text, by kind. Each word of the text must begin a word of the choice. Choices whose label
 * begins with the text come first.
 * @param {ReadonlyArray<Choice>} choices the most relevant first
 * @param {string} typed
 * @returns {ReadonlyArray<Choice>}
 */
export const chosenBy = (choices, typed) => {
  const text = typed.trim().toLowerCase().replace(/^@/, "")
  const words = text.split(/\s+/).filter(Boolean)
  const fits = choices.filter(({ label, note = "", words: more = "" }) => {
    const own = `${label} ${note} ${more}`.toLowerCase().split(/[^\p{L}\p{N}-]+/u)
    return words.every((word) => own.some((one) => one.startsWith(word)))
  })
  const isFirst = (/** @type {Choice} */ { label }) => label.toLowerCase().startsWith(text) ? 0 : 1
  return ["Conversations", "People", "Commands"].flatMap((kind) =>
    fits.filter((one) => one.kind === kind).toSorted((a, b) => isFirst(a) - isFirst(b)).slice(0, MOST)
  )
}
