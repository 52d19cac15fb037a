import { render } from "preact"
import { useEffect, useRef } from "preact/hooks"
import { Avatar } from "../shared/Avatar.js"
import { classes, html } from "../shared/Html.js"
import { ThemeChoice } from "../shared/Theme.js"
import {
  adding,
  closeView,
  front,
  resumeAll,
  sessions,
  show,
  shown,
  signIn,
  signOut,
  unread,
  waiting
} from "../tab/Agents.js"
import { awaited, beginNavigation } from "../tab/Navigation.js"
import { beginShortcuts } from "../tab/Shortcuts.js"
import { tabTitle } from "../tab/TabTitle.js"
import { Acknowledger, AgentPane } from "./AgentPane.js"
import { AlertChoice } from "./AlertChoice.js"
import { titleOf } from "./ConversationList.js"
import { SignIn } from "./SignIn.js"
import { Overlay } from "./Switcher.js"

/** @import { Session } from "../client/Session.js" */

/** @param {{ session: Session }} props */
const Chip = ({ session }) => {
  const isShown = shown.value.has(session)
  const isFront = front.value === session
  const { kind } = session.link.value
  const unread = session.unread.value
  const chip = useRef(/** @type {HTMLElement | null} */ (null))
  useEffect(() => {
    if (isFront) chip.current?.scrollIntoView({ block: "nearest", inline: "nearest" })
  }, [isFront])
  return html`<span ref=${chip} class=${classes("agent-chip", isShown && "shown", isFront && "front")}>
    <button type="button" aria-pressed=${isShown} aria-current=${isFront ? "true" : undefined} title=${
    isShown ? "Shown" : "Show this agent beside the others"
  } onClick=${() => {
    if (isShown && front.peek() !== session) front.value = session
    else if (!isShown) show(session)
  }}><${Avatar} name=${session.handle} title=${session.me.value?.display_name} url=${session.me.value?.avatar_url} dot=${
    kind === "live" ? "online" : kind === "refused" ? "offline" : "busy"
  } />
      <span class="handle-of">@${session.handle}</span><span class="unseen">${kind === "live" ? "" : `, ${kind}`}</span>
      ${
    unread === 0
      ? null
      : html`<span class="count">${unread > 999 ? "999+" : unread}<span class="unseen"> unread</span></span>`
  }</button>
    ${
    isShown && shown.value.size > 1 ?
      html`<button type="button" class="quiet" title="Close this view. The agent stays signed in." aria-label=${`Close the view of @${session.handle}`}
      onClick=${() => closeView(session)}>✕</button>` :
      null
  }
  </span>`
}

/** Names the agent of a link if the page cannot open the link because this agent is not signed in. */
const ForAnother = () =>
  awaited.value === null || waiting.value > 0 ?
    null :
    html`<p class="banner" role="status">This link is for <span class="handle">@${awaited.value.handle}</span>,
    which is not signed in here.${
      sessions.value.length === 0
        ? null
        : html`<button type="button" onClick=${() => adding.value = true}>Sign in</button>`
    }</p>`

/** The title of the open conversation of the agent in front. */
const openTitle = () => {
  const conversations = front.value?.conversations
  const place = conversations?.place.value
  if (conversations === undefined || place === null || place === undefined) return null
  const item = conversations.list.value.find(({ id }) => id === place.id)
  return item === undefined ? place.handle : titleOf(item)
}

const Page = () => {
  const all = sessions.value
  const visible = all.filter((one) => shown.value.has(one))
  const title = tabTitle({ unread: unread.value, handle: front.value?.handle ?? null, conversation: openTitle() })
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null))
  useEffect(() => {
    document.title = title
  }, [title])
  useEffect(() => {
    if (adding.value) dialog.current?.showModal()
    else dialog.current?.close()
  }, [adding.value, all.length])
  const unsent = all.some((one) => one.outbox.messages.value.length > 0 || one.uploads.all.value.size > 0)
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
        ${
    all.length === 0 ?
      null :
      html`<button type="button" class="add" onClick=${() =>
        adding.value = true}><span aria-hidden="true">+</span><span>Add an agent</span></button>`
  }
      </nav>
      ${all.length === 0 ? null : html`<${AlertChoice} />`}
      <${ThemeChoice} />
    </header>
    ${
    waiting.value === 0
      ? null
      : html`<p class="banner away" role="status">Signing in with the keys that this tab or this browser keeps …</p>`
  }
    <${ForAnother} />
    ${all.map((session) => html`<${Acknowledger} key=${session.handle} session=${session} />`)}
    ${
    all.length === 0
      ? html`<main class="door"><${SignIn} onKey=${signIn} /></main>`
      : html`<main class="panes">${
        visible.map((session) =>
          html`<div key=${session.handle} class=${classes("pane-box", front.value === session && "front")}
            onFocusIn=${() => front.value = session} onPointerDown=${() => front.value = session}>
            <${AgentPane} session=${session} isFront=${front.value === session} onSignOut=${() =>
            signOut(session)} /></div>`
        )
      }</main>
        <dialog ref=${dialog} aria-label="Add an agent" onClose=${() => adding.value = false}>
          ${adding.value ? html`<${SignIn} onKey=${signIn} />` : null}
          <button type="button" class="quiet close" aria-label="Close" onClick=${() => adding.value = false}>✕</button>
        </dialog>
        <${Overlay} />`
  }
  </div>`
}

const root = document.getElementById("page")
if (root !== null) {
  root.replaceChildren()
  render(html`<${Page} />`, root)
}
beginNavigation()
beginShortcuts()
resumeAll()
addEventListener("pagehide", () => {
  for (const session of sessions.peek()) session.hiding.flush()
})
