import { signal } from "@preact/signals"
import { render } from "preact"
import { useEffect } from "preact/hooks"
import { html } from "../shared/Html.js"
import { Problem } from "../shared/Problem.js"
import { ThemeChoice } from "../shared/Theme.js"
import { Agent, Agents } from "./Agents.js"
import { Announcements } from "./Announcements.js"
import { call, onOutside, Refused, textOf } from "./Api.js"
import { Invitations } from "./Invitations.js"
import { Limits } from "./Limits.js"
import { Audit, Backups, Connections, Group, Groups, Report, Reports, Sessions, Webhooks } from "./Lists.js"
import { Node } from "./Node.js"
import { follow, Overview } from "./Overview.js"
import { may, session } from "./Session.js"
import { Settings } from "./Settings.js"

const problem = signal(/** @type {string | null} */ (null))
const route = signal("/")

const pages = /** @type {ReadonlyArray<readonly [string, string]>} */ ([
  ["/", "Overview"],
  ["/agents", "Agents"],
  ["/groups", "Groups"],
  ["/reports", "Reports"],
  ["/webhooks", "Webhooks"],
  ["/connections", "Connections"],
  ["/invitations", "Invitations"],
  ["/announcements", "Announcements"],
  ["/limits", "Limits"],
  ["/settings", "Settings"],
  ["/backups", "Backups"],
  ["/audit", "Audit"],
  ["/sessions", "Sessions"]
])

const leave = async () => {
  await call("DELETE", "session").catch(() => undefined)
  session.value = null
}

/** The session of this browser or, without one, a new session if a proxy has signed the person in. */
const current = async () => {
  try {
    return await call("GET", "session")
  } catch (error) {
    if (!(error instanceof Refused) || error.status !== 404) throw error
    await call("POST", "session/proxy")
    // A browser that does not keep the cookie has no session.
    return await call("GET", "session")
  }
}

const begin = async () => {
  const token = /^#(?:token=)?(opl_[\w-]+)$/.exec(location.hash)?.[1]
  // The token can be used only once. Remove it from the URL and so from the browser's history.
  if (token !== undefined) history.replaceState(null, "", location.pathname)
  for (let attempt = 0;; attempt++) {
    try {
      session.value = await (token === undefined ? current() : call("POST", "session", { token }))
      problem.value = null
      return
    } catch (error) {
      if (error instanceof Refused && error.status !== 0 && error.status < 500) {
        session.value = null
        problem.value = error.status !== 404
          ? textOf(error)
          : token === undefined
          ? null
          : "This link was used already, or is older than five minutes."
        return
      }
      problem.value = `${textOf(error)} The page tries again automatically.`
      await new Promise((resolve) => setTimeout(resolve, Math.min(10_000, 500 * 2 ** attempt)))
    }
  }
}

const Outside = () =>
  html`<main class="door"><section class="sign-in"><h2>Console</h2><${Problem} text=${problem.value} />
    <p>This page is for the operators of this server. Run this command on the server's machine. It prints a link that signs you in once:</p>
    <pre class="command">npm run admin -- console</pre>
    <p><button type="button" onClick=${() => void begin()}>Sign in again</button></p></section></main>`

/**
 * Decodes the part of a URL that names an agent, a group or a node; undefined if it is empty or cannot be decoded.
 * @param {string | undefined} part
 */
const decoded = (part) => {
  try {
    return part === undefined || part === "" ? undefined : decodeURIComponent(part)
  } catch {
    return undefined
  }
}

const Inside = () => {
  const [, page = "", id] = route.value.split("/")
  const shown = decoded(id)
  useEffect(follow, [])
  useEffect(() => {
    document.title = `${pages.find(([path]) => path === `/${page}`)?.[1] ?? shown ?? "Console"} · Parley console`
    document.getElementById("main")?.focus({ preventScroll: true })
  }, [route.value])
  return html`<div class="console-body">
    <nav class="side" aria-label="Console"><ul>${
    pages.filter(([path]) => path !== "/settings" || may("operator")).map(([path, label]) =>
      html`<li key=${path}><a href=${`#${path}`} aria-current=${
        path === `/${page}` ? "page" : undefined
      }>${label}</a></li>`
    )
  }</ul></nav>
    <main id="main" tabindex="-1" key=${route.value}>
      ${
    page === "" ?
      html`<${Overview} />`
      : page === "nodes" && shown !== undefined ?
      html`<${Node} address=${shown} />`
      : page === "agents" ?
      shown === undefined ? html`<${Agents} />` : html`<${Agent} handle=${shown} />`
      : page === "groups" ?
      shown === undefined ? html`<${Groups} />` : html`<${Group} id=${shown} />`
      : page === "reports" ?
      shown === undefined ? html`<${Reports} />` : html`<${Report} id=${shown} />`
      : page === "webhooks" ?
      html`<${Webhooks} />`
      : page === "connections" ?
      html`<${Connections} />`
      : page === "invitations" ?
      html`<${Invitations} />`
      : page === "announcements" ?
      html`<${Announcements} />`
      : page === "limits" ?
      html`<${Limits} />`
      : page === "settings" ?
      html`<${Settings} />`
      : page === "backups" ?
      html`<${Backups} />`
      : page === "audit" ?
      html`<${Audit} />`
      : page === "sessions" ?
      html`<${Sessions} onLeave=${leave} />`
      : html`<p class="empty">There is no such page.</p>`
  }
    </main></div>`
}

const Page = () =>
  html`<div class="console"><header class="top"><h1><a href="./"><span class="mark" aria-hidden="true"></span>Parley</a> <span class="sub">console</span></h1>
    <span class="agents">${
    session.value
      ? html`<small><bdi>${session.value.operator}</bdi> · ${session.value.node} · ${session.value.version}</small>`
      : null
  }</span>
    ${
    session.value ? html`<button type="button" onClick=${() => void leave()}>Sign out</button>` : null
  }<${ThemeChoice} /></header>
    ${
    session.value === undefined
      ? html`<main class="door"><${Problem} text=${problem.value} /></main>`
      : session.value === null
      ? html`<${Outside} />`
      : html`<${Inside} />`
  }</div>`

onOutside.current = (why) => {
  session.value = null
  problem.value = why
}
const place = () => {
  const path = location.hash.replace(/^#/, "")
  if (/^(token=)?opl_/.test(path)) void begin()
  else route.value = path === "" ? "/" : path
}
addEventListener("hashchange", place)
const root = document.getElementById("page")
if (root !== null) {
  root.replaceChildren()
  render(html`<${Page} />`, root)
}
if (!/^#(token=)?opl_/.test(location.hash)) {
  place()
  void begin()
} else place()
