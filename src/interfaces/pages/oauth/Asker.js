import { html } from "../shared/Html.js"

/** @import { SignInRequest } from "./SignInRequest.ts" */

const cautions = {
  https: null,
  loopback: "This address is your own device. Any program on it can ask in this way, under any name.",
  private:
    "This address opens an application on your device. Any application can claim the address, and ask under any name."
}

/**
 * Shows which program asks, and to which address the browser returns with the answer.
 * @param {{ request: SignInRequest }} props
 */
export const Asker = ({ request: { client, redirect } }) => {
  const caution = cautions[redirect.kind]
  const name = client.name === null ? null : html`calls itself <strong>“<bdi>${client.name}</bdi>”</strong>`
  const here = html`<bdi>${location.host}</bdi>`
  return html`${
    client.host === null
      ? html`<p>A program that ${name ?? "gives no name"} asks for access to an agent on ${here}. ${
        name === null ? "Nobody knows whose program it is." : "Nobody has checked this name."
      }</p>`
      : html`<p><strong><bdi>${client.host}</bdi></strong> asks for access to an agent on ${here}.${
        name === null ? null : html` Its program ${name}.`
      }</p>`
  }
    <p class="destination"><span>If you choose Allow, the access goes to</span><strong><bdi>${redirect.shown}</bdi></strong></p>
    ${
    caution === null
      ? null
      : html`<p class="caution">${caution} Choose Allow only if you have just started this sign-in yourself.</p>`
  }`
}
