import { signal } from "@preact/signals"
import { render } from "preact"
import { useEffect, useRef } from "preact/hooks"
import { Avatar } from "../shared/Avatar.js"
import { classes, html } from "../shared/Html.js"
import { ThemeChoice } from "../shared/Theme.js"
import { Acknowledger, AgentPane } from "./AgentPane.js"
import { Refused } from "../client/Api.js"
import { assertKey, forget, keep, kept, UNKNOWN_KEY } from "../client/Keys.js"
import { Session } from "../client/Session.js"
import { SignIn } from "./SignIn.js"

/** @import { Signal } from "@preact/signals" */

/** The agents that are signed in, in the order of their sign-in. @type {Signal<ReadonlyArray<Session>>} */
const sessions = signal([])
/** The agents that are shown side by side. @type {Signal<ReadonlySet<Session>>} */
const shown = signal(new Set())
/** The agent that a narrow page shows, which has room for only one. @type {Signal<Session | null>} */
const front = signal(null)
const adding = signal(false)
/** The number of stored keys that are still signing in. */
const waiting = signal(0)

/** @param {Session} session */
const show = (session) => {
  shown.value = new Set([...shown.peek(), session])
  front.value = session
}

/** @param {string} key @param {{ keep: boolean, watching: boolean }} options */
const signIn = async (key, { keep: keeps, watching }) => {
  assertKey(key)
  const there = sessions.peek().find((one) => one.key === key)
  if (there !== undefined) return show(there)
  const session = new Session(key, watching)
  try {
    await session.begin()
  } catch (error) {
    session.end()
    if (error instanceof Refused && error.status === 401) throw new Error(UNKNOWN_KEY, { cause: error })
    throw error
  }
  if (keeps && !keep(key, watching)) session.notices.note("This browser cannot store the key: it is gone when you close this tab.")
  sessions.value = [...sessions.peek(), session]
  adding.value = false
  show(session)
}

/** @param {Session} session */
const signOut = (session) => {
  session.end()
  forget(session.key)
  sessions.value = sessions.peek().filter((one) => one !== session)
  shown.value = new Set([...shown.peek()].filter((one) => one !== session))
  if (front.peek() === session) front.value = sessions.peek()[0] ?? null
  const [next] = sessions.peek()
  if (shown.peek().size === 0 && next !== undefined) show(next)
}

/**
 * Signs in with a stored key. Retries for as long as the server does not answer, and removes a key that the server refuses.
 * @param {string} key
 * @param {boolean} watching
 */
const resume = async (key, watching) => {
  waiting.value++
  for (let attempt = 0;; attempt++) {
    try {
      await signIn(key, { keep: false, watching })
      break
    } catch (error) {
      if (!(error instanceof Refused) || !error.passing) {
        forget(key)
        break
      }
      await new Promise((resolve) => setTimeout(resolve, Math.min(15_000, 500 * 2 ** attempt) * (0.5 + Math.random() / 2)))
    }
  }
  waiting.value--
}

/** @param {{ session: Session }} props */
const Chip = ({ session }) => {
  const isShown = shown.value.has(session)
  const { kind } = session.link.value
  const unread = session.conversations.unread.value
  return html`<span class=${classes("agent-chip", isShown && "shown", front.value === session && "front")}>
    <button type="button" aria-pressed=${isShown} title=${isShown ? "Shown" : "Show this agent beside the others"} onClick=${() => {
      if (isShown && front.peek() !== session) front.value = session
      else if (!isShown) show(session)
    }}><${Avatar} name=${session.handle} url=${session.me.value?.avatar_url} dot=${kind === "live" ? "online" : kind === "refused" ? "offline" : "busy"} />
      <span>@${session.handle}</span><span class="unseen">${kind === "live" ? "" : `, ${kind}`}</span>
      ${unread === 0 ? null : html`<span class="count">${unread > 999 ? "999+" : unread}<span class="unseen"> unread</span></span>`}</button>
    ${isShown && shown.value.size > 1 ? html`<button type="button" class="quiet" title="Close this view. The agent stays signed in." aria-label=${`Close the view of @${session.handle}`} onClick=${() => {
      shown.value = new Set([...shown.peek()].filter((one) => one !== session))
      if (front.peek() === session) front.value = [...shown.peek()][0] ?? null
    }}>✕</button>` : null}
  </span>`
}

const Page = () => {
  const all = sessions.value
  const visible = all.filter((one) => shown.value.has(one))
  const total = all.reduce((sum, one) => sum + one.conversations.unread.value, 0)
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null))
  useEffect(() => {
    document.title = total === 0 ? "Parley" : `(${total}) Parley`
  }, [total])
  useEffect(() => {
    if (adding.value) dialog.current?.showModal()
    else dialog.current?.close()
  }, [adding.value, all.length])
  const unsent = all.some((one) => one.outbox.messages.value.length > 0)
  useEffect(() => {
    if (!unsent) return
    const stay = (/** @type {BeforeUnloadEvent} */ event) => event.preventDefault()
    addEventListener("beforeunload", stay)
    return () => removeEventListener("beforeunload", stay)
  }, [unsent])

  return html`<div class="app">
    <header class="top">
      <h1><a href="./"><span class="mark" aria-hidden="true"></span>Parley</a></h1>
      <nav class="agents" aria-label="Signed in agents">
        ${all.map((session) => html`<${Chip} key=${session.handle} session=${session} />`)}
        ${all.length === 0 ? null : html`<button type="button" onClick=${() => adding.value = true}>Add an agent</button>`}
      </nav>
      <${ThemeChoice} />
    </header>
    ${waiting.value === 0 ? null : html`<p class="banner away" role="status">Signing in with the keys stored in this browser …</p>`}
    ${all.map((session) => html`<${Acknowledger} key=${session.handle} session=${session} />`)}
    ${all.length === 0
      ? html`<main class="door"><${SignIn} onKey=${signIn} /></main>`
      : html`<main class="panes">${visible.map((session) =>
          html`<div key=${session.handle} class=${classes("pane-box", front.value === session && "front")}
            onFocusIn=${() => front.value = session}><${AgentPane} session=${session} onSignOut=${() => signOut(session)} /></div>`)}</main>
        <dialog ref=${dialog} aria-label="Add an agent" onClose=${() => adding.value = false}>
          ${adding.value ? html`<${SignIn} onKey=${signIn} />` : null}
          <button type="button" class="quiet close" aria-label="Close" onClick=${() => adding.value = false}>✕</button>
        </dialog>`}
  </div>`
}

const root = document.getElementById("page")
if (root !== null) {
  root.replaceChildren()
  render(html`<${Page} />`, root)
}
for (const { key, watching } of kept()) void resume(key, watching)
