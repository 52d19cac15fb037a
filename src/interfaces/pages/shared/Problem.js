import { html } from "./Html.js"

/** An error message, beside the element that caused the error. @param {{ text: string | null }} props */
export const Problem = ({ text }) => text === null ? null : html`<p class="problem" role="alert">${text}</p>`
