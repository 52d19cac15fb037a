import { useState } from "preact/hooks"
import { useForm } from "./Forms.js"
import { html } from "./Html.js"
import { Problem } from "./Problem.js"

/** A secret that is shown once, with a button that copies it. @param {{ label: string, value: string }} props */
export const Secret = ({ label, value }) => {
  const [copied, setCopied] = useState(false)
  const { during, problem } = useForm()
  return html`<p class="key"><output aria-label=${label}>${value}</output>
      <button type="button" onClick=${during(async () => {
        try {
          await navigator.clipboard.writeText(value)
        } catch {
          throw new Error("This browser does not let the page copy the text. Select the text and copy it yourself.")
        }
        setCopied(true)
      })}>${copied ? "Copied" : "Copy"}</button></p>
    <${Problem} text=${problem} />`
}
