import { useEffect, useState } from "preact/hooks"
import { html } from "./Html.js"

/** Copies a text to the clipboard. Returns whether the browser allows this. @param {string} text */
const copy = async (text) => {
  // Browsers have no `navigator.clipboard` on a page that was opened over http.
  if (navigator.clipboard !== undefined) return navigator.clipboard.writeText(text).then(() => true, () => false)
  const field = document.createElement("textarea")
  field.value = text
  field.className = "unseen"
  document.body.append(field)
  field.select()
  const done = document.execCommand("copy")
  field.remove()
  return done
}

/**
 * A button that copies a text.
 * @param {{ text: () => string, label: string, tab?: number }} props `label` names the text for a screen reader. `tab`
 * is the tabindex.
 */
export const Copy = ({ label, tab = 0, text }) => {
  const [said, setSaid] = useState("Copy")
  useEffect(() => {
    if (said === "Copy") return
    const timer = setTimeout(() => setSaid("Copy"), 2_000)
    return () => clearTimeout(timer)
  }, [said])
  return html`<button type="button" class="quiet copy" tabindex=${tab} aria-label=${`${said}: ${label}`}
    onClick=${async () => setSaid(await copy(text()) ? "Copied" : "Cannot copy")}>${said}</button>`
}
