import { render } from "preact"
import { useEffect, useRef } from "preact/hooks"
import { urlOf } from "../client/Api.js"
import { html } from "../shared/Html.js"
import { Problem } from "../shared/Problem.js"
import { ThemeChoice } from "../shared/Theme.js"
import { Answered } from "./Answered.js"
import { Asker } from "./Asker.js"
import { Choose } from "./Choose.js"
import { Decide } from "./Decide.js"
import { Registered } from "./Registered.js"
import { Request } from "./Request.js"

const request = new Request(new URLSearchParams(location.search).get("request") ?? "")

const Over = () =>
  html`<p>The request has been answered, is older than 15 minutes, or began in another browser.</p>
  <p>Go back to the program that sent you here, and connect to this server again there.</p>`

const Page = () => {
  const state = request.state.value
  const heading = useRef(/** @type {HTMLHeadingElement | null} */ (null))
  const first = useRef(true)
  // Each step replaces the focused control, so move the focus to the heading.
  useEffect(() => {
    if (state.kind === "loading") return
    if (!first.current) heading.current?.focus()
    first.current = false
  }, [state.kind])
  const title = state.kind === "over" ?
    "This request is over"
    : state.kind === "answered" ?
    state.agent === null ? "You have denied the access" : "You have allowed the access"
    : state.kind === "registered" ?
    "Your agent is ready"
    : "Connect a program to your agent"
  return html`<div class="app">
    <header class="top"><h1><a href=${
    urlOf("")
  }><span class="mark" aria-hidden="true"></span>Parley</a></h1><span class="agents"></span><${ThemeChoice} /></header>
    <main class="door"><section class="sign-in connect">
      <h2 ref=${heading} tabindex="-1">${title}</h2>
      ${
    state.kind === "loading" ?
      html`<p class="hint" role="status">Reading the request …</p>`
      : state.kind === "unreachable" ?
      html`<${Problem} text=${state.why} /><p><button type="button" class="primary" onClick=${() =>
        void request.load()}>Try again</button></p>`
      : state.kind === "over" ?
      html`<${Over} />`
      : state.kind === "answered" ?
      html`<${Answered} state=${state} />`
      : state.kind === "registered" ?
      html`<${Registered} request=${request} state=${state} />`
      : html`<${Asker} request=${state.request} />
          ${
        state.kind === "choosing" ?
          html`<${Choose} request=${request} asked=${state.request} />`
          : html`<${Decide} request=${request} asked=${state.request} agent=${state.agent} />`
      }`
  }
    </section></main>
  </div>`
}

const root = document.getElementById("page")
if (root !== null) {
  root.replaceChildren()
  render(html`<${Page} />`, root)
}
void request.load()
