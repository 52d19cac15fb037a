import { useEffect, useState } from "preact/hooks"
import { textOf } from "../client/Api.js"

/**
 * @import { Listed } from "../client/Wire.ts"
 * @import { Session } from "../client/Session.js"
 */

/**
 * The directory search for a text; undefined if the directory would refuse the search. A text after `#` is a tag. Any
 * other text is the beginning of a handle.
 * @param {string} text
 */
const questionOf = (text) => {
  if (text.startsWith("#"))
    return text.length > 1 && [...text].length <= 33
      ? `tag=${encodeURIComponent(text.slice(1))}`
      : undefined
  const prefix = text.replace(/^@/, "").toLowerCase()
  return /^[a-z0-9-]{2,50}$/.test(prefix) ? `q=${prefix}` : undefined
}

/**
 * Searches the directory for a text. Waits until the person has stopped typing, because each search counts against a
 * budget.
 * @param {Session} session
 * @param {string} text
 * @returns {{ found: { agents: ReadonlyArray<Listed>, total: number } | null, problem: string | null }}
 */
export const useDirectory = (session, text) => {
  const [state, setState] = useState(/** @type {ReturnType<typeof useDirectory>} */ ({ found: null, problem: null }))
  const question = questionOf(text)
  useEffect(() => {
    setState({ found: null, problem: null })
    if (question === undefined) return
    let current = true
    const timer = setTimeout(() => {
      session.api.get(`v1/directory?${question}&limit=50`).then(
        (found) => {
          if (current) setState({ found, problem: null })
        },
        (error) => {
          if (current) setState({ found: null, problem: textOf(error) })
        }
      )
    }, 300)
    return () => {
      current = false
      clearTimeout(timer)
    }
  }, [question])
  return state
}
