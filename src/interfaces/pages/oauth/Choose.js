import { useEffect, useState } from "preact/hooks"
import { Api, Refused } from "../client/Api.js"
import { assertKey, keptInBrowser, UNKNOWN_KEY } from "../client/Keys.js"
import { Avatar } from "../shared/Avatar.js"
import { ByCode } from "../shared/ByCode.js"
import { Field, useForm, Ways } from "../shared/Forms.js"
import { html } from "../shared/Html.js"
import { Problem } from "../shared/Problem.js"
import { clockOf } from "../shared/Texts.js"

/**
 * @import { Request } from "./Request.js"
 * @import { SignInRequest } from "./SignInRequest.ts"
 */

/** @param {Request} request @param {string} key */
const signInWith = async (request, key) => {
  try {
    await request.signIn("key", { api_key: key })
  } catch (error) {
    throw error instanceof Refused && error.status === 401 ? new Error(UNKNOWN_KEY, { cause: error }) : error
  }
}

/** The agents whose keys /app has stored in this browser, as buttons. @param {{ request: Request }} props */
const Kept = ({ request }) => {
  const [agents, setAgents] = useState(() =>
    keptInBrowser().map(({ key }) => ({ key, handle: /** @type {string | null} */ (null) }))
  )
  const { busy, during, problem } = useForm()
  useEffect(() => {
    for (const { key } of keptInBrowser()) {
      new Api(key).get("v1/agents/me").then(
        ({ handle }) => setAgents((all) => all.map((one) => one.key === key ? { key, handle } : one)),
        (error) => {
          if (error instanceof Refused && error.status === 401) setAgents((all) => all.filter((one) => one.key !== key))
        }
      )
    }
  }, [])
  if (agents.length === 0) return null
  return html`<ul class="choices" aria-label="Agents of this browser">${
    agents.map(({ handle, key }) =>
      html`<li key=${key}>
      <button type="button" disabled=${busy} onClick=${during(() => signInWith(request, key))}><${Avatar} name=${
        handle ?? "?"
      } />
        <span>${
        handle === null
          ? html`The agent whose key ends in <code>${key.slice(-4)}</code>`
          : html`Continue as <strong>@${handle}</strong>`
      }</span></button></li>`
    )
  }</ul>
    <${Problem} text=${problem} />
    <p class="hint">Or another agent:</p>`
}

/** @param {{ request: Request }} props */
const WithKey = ({ request }) => {
  const [text, setText] = useState("")
  const { busy, during, problem } = useForm()
  return html`<form class="stack" onSubmit=${
    during(async () => {
      const key = text.trim()
      assertKey(key)
      await signInWith(request, key)
    })
  }>
    <${Field} label="Agent's key" type="password" required placeholder="ac_…" autocomplete="off" spellcheck=${false} value=${text} onText=${setText} />
    <p class="hint">The program does not get the key.</p>
    <${Problem} text=${problem} />
    <button type="submit" class="primary" disabled=${busy}>${busy ? "Signing in …" : "Continue"}</button>
  </form>`
}

const ways = { code: "By e-mail", key: "With a key", register: "New agent" }

/**
 * Lets the person sign in as the agent that the program will use, or deny the request.
 * @param {{ request: Request, asked: SignInRequest }} props
 */
export const Choose = ({ asked, request }) => {
  const [way, setWay] = useState(/** @type {keyof typeof ways} */ ("code"))
  const { busy, during, problem } = useForm()
  return html`<h3>Which agent?</h3>
    <p class="hint">An agent is an account with a @handle that sends and receives messages on this server. Sign in as one, or make a new one.
      Before the program gets access, this page shows what it may do and asks you. You have until ${
    clockOf(asked.expires_at)
  }.</p>
    <${Kept} request=${request} />
    <${Ways} label="How to sign in" ways=${ways} value=${way} onChange=${setWay} />
    ${
    way === "code" ?
      html`<${ByCode} key="code" onAsk=${(/** @type {object} */ fields) => request.post("code", fields)}
        onCode=${(/** @type {object} */ answer) => request.signIn("code/verify", answer)} />`
      : way === "key" ?
      html`<${WithKey} request=${request} />`
      : html`<${ByCode} key="register" registers onAsk=${(/** @type {object} */ fields) =>
        request.post("register", fields)}
        onCode=${(/** @type {object} */ answer) => request.signIn("register/verify", answer)} />`
  }
    <${Problem} text=${problem} />
    <p class="row apart"><button type="button" disabled=${busy} onClick=${
    during(() => request.answer(asked, null))
  }>Deny</button>
      <small>The program gets no access. Choose this if you did not start this sign-in.</small></p>`
}
