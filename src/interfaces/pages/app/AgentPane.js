import { useEffect, useRef, useState } from "preact/hooks"
import { html } from "../shared/Html.js"
import { ConversationList } from "./ConversationList.js"
import { Me } from "./Me.js"
import { NewMessage } from "./NewMessage.js"
import { People } from "./People.js"
import { PictureDialog } from "./PictureDialog.js"
import { ProfileDialog } from "./ProfileDialog.js"
import { Search } from "./Search.js"
import { Thread } from "./Thread.js"

/**
 * @import { Session } from "../client/Session.js"
 * @import { Notice } from "../client/Notices.js"
 */

/** Shows why there is no connection, and when the page tries again to connect. @param {{ session: Session }} props */
const LinkState = ({ session }) => {
  const link = session.link.value
  const [, tick] = useState(0)
  const waiting = link.kind === "away"
  useEffect(() => {
    if (!waiting) return
    const timer = setInterval(() => tick(Date.now()), 500)
    return () => clearInterval(timer)
  }, [waiting])
  if (link.kind === "refused") return html`<p class="banner refused" role="alert">${link.why}</p>`
  if (link.kind !== "away") return null
  const seconds = Math.max(0, Math.ceil((link.until - Date.now()) / 1000))
  return html`<p class="banner away"><span role="status">${link.why} The page reconnects automatically.</span>
    <span aria-hidden="true" class="countdown">${seconds === 0 ? "now" : `in ${seconds} s`}</span>
    <button type="button" onClick=${() => session.socket?.connect()}>Try now</button></p>`
}

/** Acknowledges messages after they are drawn. @param {{ session: Session }} props */
export const Acknowledger = ({ session }) => {
  const arrived = session.arrived.value
  useEffect(() => session.acknowledge(), [arrived])
  return null
}

/**
 * A text for the person. If the notice has an action, a button runs it.
 * @param {{ session: Session, notice: Notice }} props
 */
const NoticeLine = ({ notice: { action, id, text }, session }) => {
  const button = useRef(/** @type {HTMLButtonElement | null} */ (null))
  useEffect(() => {
    // The action has removed the element that had the focus.
    if (action !== undefined && document.activeElement === document.body) button.current?.focus()
  }, [])
  return html`<p class="notice"><span>${text}</span>
    ${
    action === undefined
      ? null
      : html`<button type="button" ref=${button} class="quiet act" onClick=${action.run}>${action.label}</button>`
  }
    <button type="button" class="quiet" aria-label="Dismiss" onClick=${() =>
    session.notices.dismiss(id)}>✕</button></p>`
}

const tabs = { conversations: "Messages", people: "People", new: "New", me: "Agent" }

/**
 * The pane of one agent: its list of conversations beside the open conversation. A narrow pane shows only the list or
 * the conversation.
 * @param {{ session: Session, isFront: boolean, onSignOut: () => void }} props
 */
export const AgentPane = ({ isFront, onSignOut, session }) => {
  const tab = session.view.value
  const setTab = (/** @type {keyof typeof tabs} */ next) => {
    session.view.value = next
  }
  const place = session.conversations.place.value
  const me = session.me.value
  const pane = useRef(/** @type {HTMLElement | null} */ (null))
  const opened = useRef(place)
  useEffect(() => {
    // When a thread is closed and nothing else has taken the focus, its conversation in the list gets it.
    if (place === null && opened.current !== null && isFront && document.activeElement === document.body) {
      const row = pane.current?.querySelector(`[data-conversation="${opened.current.id}"]`) ??
        pane.current?.querySelector(".tabs button")
      if (row instanceof HTMLElement) row.focus()
    }
    opened.current = place
  }, [place])
  const write = (/** @type {string} */ handle) => {
    session.openWith(handle)
    setTab("conversations")
  }
  return html`<section class="pane" ref=${pane} data-open=${
    place === null ? "list" : "thread"
  } aria-label=${`Agent @${session.handle}`}>
    <${LinkState} session=${session} />
    <div class="notices" role="status" aria-live="polite">
      ${
    session.notices.list.value.map((notice) =>
      html`<${NoticeLine} key=${notice.id} session=${session} notice=${notice} />`
    )
  }
    </div>
    <div class="pane-body">
      <div class="list">
        <header class="list-head"><h2><bdi>${
    me?.display_name ?? ""
  }</bdi> <span class="handle">@${session.handle}</span>
          ${session.watching ? html`<small class="tag">watching</small>` : null}</h2>
          <div class="tabs" role="group" aria-label="Views">
            ${
    Object.entries(tabs).filter(([name]) => name !== "new" || !session.watching).map(([name, label]) =>
      html`<button type="button" key=${name} aria-pressed=${tab === name} onClick=${() =>
        setTab(/** @type {keyof typeof tabs} */ (name))}>${label}</button>`
    )
  }
          </div></header>
        ${
    tab === "conversations" ?
      html`<div class="list-body"><${Search} session=${session}><${ConversationList} session=${session} /><//></div>`
      : tab === "people" ?
      html`<${People} session=${session} onWrite=${write} />`
      : tab === "new" ?
      html`<${NewMessage} session=${session} onDone=${() => setTab("conversations")} />`
      : html`<${Me} session=${session} onSignOut=${onSignOut} />`
  }
      </div>
      ${
    place === null
      ? html`<div class="thread nothing"><p class="empty">${
        session.conversations.list.value.length === 0 ? "Conversations open here." : "Choose a conversation."
      }</p></div>`
      : html`<${Thread} session=${session} place=${place} isFront=${isFront} />`
  }
    </div>
    <${ProfileDialog} session=${session} />
    <${PictureDialog} session=${session} />
  </section>`
}
