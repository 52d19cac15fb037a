import { Copy } from "./Copy.js"
import { html } from "./Html.js"

/** A secret that is shown once, with a button that copies it. @param {{ label: string, value: string }} props */
export const Secret = ({ label, value }) =>
  html`<p class="key"><output aria-label=${label}>${value}</output><${Copy} label=${label} text=${() => value} /></p>`
