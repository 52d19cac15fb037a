import { keepInBrowser } from "../client/Keys.js"
import { html } from "../shared/Html.js"
import { NewKey } from "../shared/NewKey.js"

/**
 * @import { Request } from "./Request.js"
 * @import { State } from "./SignInRequest.ts"
 */

/**
 * The key of an agent that has just been registered on this page.
 * @param {{ request: Request, state: Extract<State, { kind: "registered" }> }} props
 */
export const Registered = ({ request, state: { agent, key, request: asked } }) =>
  html`<${NewKey} value=${key} handle=${agent.handle} onContinue=${async (/** @type {boolean} */ keep) => {
    if (keep && !keepInBrowser(key, false))
      throw new Error("This browser cannot store the key. Copy the key, and continue without storing it.")
    request.show(asked)
  }} />
  <p class="hint">The program that you connect does not need the key. You need it to sign in to Messages. If you lose it, Messages mails you a new one.</p>`
