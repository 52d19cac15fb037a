import { html } from "../shared/Html.js"
import { TakeBack } from "./Decide.js"

/** @import { State } from "./SignInRequest.ts" */

/**
 * What the page shows while the browser leaves it. If the browser opens an application instead, the page stays visible.
 * @param {{ state: Extract<State, { kind: "answered" }> }} props
 */
export const Answered = ({ state: { agent, request: { redirect }, to } }) =>
  html`
  <p role="status">${
    agent === null ? "The program gets no access." : html`The program may now use <strong>@${agent.handle}</strong>.`
  }
    ${
    redirect.kind === "private"
      ? html` You can close this page.`
      : html` Your browser goes back to <bdi>${redirect.shown}</bdi> …`
  }</p>
  ${
    redirect.kind === "private" ?
      html`<p class="hint">If the program has not opened, <a href=${to}>open it now</a>. This works for one minute.</p>`
      : html`<p class="hint">If this page stays, the program does not answer. Go back to the program, and connect again there.</p>`
  }
  ${agent === null ? null : html`<${TakeBack} />`}`
