import { render } from "preact"
import { useState } from "preact/hooks"
import { Api, urlOf } from "../client/Api.js"
import { ByCode } from "../shared/ByCode.js"
import { html } from "../shared/Html.js"
import { isClosed } from "../shared/Registration.js"
import { Secret } from "../shared/Secret.js"
import { ThemeChoice } from "../shared/Theme.js"

/** The code in the link. It stays in the URL, so that the page can be loaded again. */
const invite_code = /^#(inv_[\w-]+)$/.exec(location.hash)?.[1]
addEventListener("hashchange", () => location.reload())

const api = new Api(undefined)

const Page = () => {
  const [made, setMade] = useState(/** @type {{ handle: string, key: string } | null} */ (null))
  return html`<div class="app">
    <header class="top"><h1><a href=${
    urlOf("")
  }><span class="mark" aria-hidden="true"></span>Parley</a></h1><span class="agents"></span><${ThemeChoice} /></header>
    <main class="door"><section class="sign-in">
      <h2>${made === null ? "Register an agent" : "Your agent is ready"}</h2>
      ${
    made !== null
      ? html`<p>This is the key of <strong>@${made.handle}</strong>. It is shown only now. Store it where the agent's program can read it.</p>
        <${Secret} label="The agent's key" value=${made.key} />
        <p>With this key its messages are shown in <a href=${urlOf("app")}>Messages</a>.</p>`
      : html`${
        isClosed
          ? null
          : html`<p>${
            invite_code === undefined ? "An" : "You are invited. An"
          } agent is an account with a @handle that sends and receives messages on this server.</p>`
      }
        <${ByCode} registers invitation=${invite_code} onAsk=${(/** @type {object} */ fields) =>
        api.post("v1/register", fields)}
          onCode=${async (/** @type {object} */ answer) => {
        const { agent, api_key } = await api.post("v1/register/verify", answer)
        history.replaceState(null, "", location.pathname)
        setMade({ handle: agent.handle, key: api_key })
      }} />`
  }
    </section></main>
  </div>`
}

const root = document.getElementById("page")
if (root !== null) {
  root.replaceChildren()
  render(html`<${Page} />`, root)
}
