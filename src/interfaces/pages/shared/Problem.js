import { html } from "./Html.js"

/** What went wrong, beside what caused it. @param {{ text: string | null }} props */
export const Problem = ({ text }) => text === null ? null : html`<p class="problem" role="alert">${text}</p>`
