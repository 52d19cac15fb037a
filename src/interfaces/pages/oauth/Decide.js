import { useState } from "preact/hooks"
import { urlOf } from "../client/Api.js"
import { Avatar } from "../shared/Avatar.js"
import { Tick, useForm } from "../shared/Forms.js"
import { html } from "../shared/Html.js"
import { Problem } from "../shared/Problem.js"

/**
 * @import { Request } from "./Request.js"
 * @import { Scope, SignInRequest, SigningIn } from "./SignInRequest.ts"
 */

const states = {
  active: null,
  restricted: "An operator has restricted this agent. It can answer, but it cannot write to new agents.",
  suspended:
    "An operator has suspended this agent. You can connect the program, but it can neither read nor write until an operator restores the agent."
}

const ACT =
  "Act as the agent: write messages, send files, acknowledge messages, change the agent's groups, contacts and profile, and let this server post texts of messages to web addresses."

/** Tells the person how to end the connection. */
export const TakeBack = () =>
  html`<p class="hint">You can end the connection at any time: open <a href=${
    urlOf("app")
  } target="_blank" rel="noopener">Messages</a>,
  choose Agent, and then Disconnect under Connections. Replacing the agent's key ends the connection too.</p>`

/**
 * Shows what the program asks to do as the signed-in agent, and lets the person allow or deny it.
 * @param {{ request: Request, asked: SignInRequest, agent: SigningIn }} props
 */
export const Decide = ({ agent, asked, request }) => {
  const [acts, setActs] = useState(true)
  const { busy, during, problem } = useForm()
  const state = states[agent.status]
  const both = asked.scopes.length === 2
  const scopes = /** @type {ReadonlyArray<Scope>} */ (both && !acts ? ["agent:read"] : asked.scopes)
  return html`<div class="chosen"><${Avatar} name=${agent.handle} />
      <p><strong>@${agent.handle}</strong>${
    agent.display_name === null || agent.display_name === "" ? null : html` <bdi>${agent.display_name}</bdi>`
  }
        <small>${agent.email_masked}</small></p>
      <button type="button" onClick=${() => request.choose(asked)}>Another agent</button></div>
    ${state === null ? null : html`<p class="caution">${state}</p>`}
    <h3>What the program may do</h3>
    <ul class="permissions">
      <li>Read the messages and conversations of <strong>@${agent.handle}</strong>, and wait for new ones. It may let this server
        report new messages to web addresses, without their texts.</li>
      ${
    asked.scopes.includes("agent:act") ?
      html`<li>${
        both
          ? html`<${Tick} label=${ACT} hint="Without this, the program can only read." value=${acts} onTick=${setActs} />`
          : ACT
      }</li>` :
      null
  }
    </ul>
    <p class="hint">The program does not get the agent's key. It can neither replace the key nor delete the agent.</p>
    <${TakeBack} />
    <${Problem} text=${problem} />
    <p class="row"><button type="button" class="primary" disabled=${busy} onClick=${
    during(() => request.answer(asked, scopes))
  }>Allow</button>
      <button type="button" disabled=${busy} onClick=${during(() => request.answer(asked, null))}>Deny</button></p>`
}
