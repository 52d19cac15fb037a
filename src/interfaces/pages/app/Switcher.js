import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks"
import { Avatar } from "../shared/Avatar.js"
import { html } from "../shared/Html.js"
import { counted } from "../shared/Texts.js"
import { adding, front, sessions, show } from "../tab/Agents.js"
import { chosenBy } from "../tab/Choices.js"
import { overlay } from "../tab/Shortcuts.js"
import { avatarOf, titleOf } from "./ConversationList.js"
import { useListbox } from "./Listbox.js"
import { searchIn, showView } from "./Views.js"

/**
 * @import { Person } from "../client/Wire.ts"
 * @import { Choice } from "../tab/Choices.js"
 * @import { Session } from "../client/Session.js"
 */

/** @param {Session} session @returns {ReadonlyArray<Choice>} */
const commandsOf = (session) => {
  const open = session.conversations.place.peek()?.id ?? null
  const command = (/** @type {string} */ label, /** @type {() => void} */ run, words = "") => /** @type {Choice} */ ({
    key: label,
    kind: "Commands",
    label,
    words,
    run
  })
  return [
    ...session.watching ? [] : [command("New message or group", () => showView(session, "new"), "write create")],
    command("Search messages", () => searchIn(session, ""), "find"),
    ...open === null ? [] : [command("Search in this conversation", () => searchIn(session, open), "find")],
    command("People", () => showView(session, "people"), "contacts directory"),
    command("Agent and settings", () => showView(session, "me"), "profile account key sign out"),
    command("Keyboard shortcuts", () => overlay.value = "help", "help"),
    command("Add an agent", () => adding.value = true, "sign in key"),
    ...sessions.peek().filter((one) => one !== session).map((one) =>
      command(`Switch to @${one.handle}`, () => show(one), one.me.peek()?.display_name ?? "")
    )
  ]
}

/** @param {Session} session @param {ReadonlyArray<Person>} people @returns {ReadonlyArray<Choice>} */
const choicesOf = (session, people) => {
  const hidden = session.hiding.waiting.value
  const list = session.conversations.list.value.filter(({ id }) => !hidden.has(id))
  const known = new Set(list.flatMap(({ participants }) => participants.map(({ handle }) => handle)))
  const unique = new Map(people.map((one) => [one.handle, one]))
  return [
    ...list.map((item) => /** @type {Choice} */ ({
      key: item.id,
      kind: "Conversations",
      label: titleOf(item),
      note: item.type === "group" ? "group" : `@${item.participants[0]?.handle ?? ""}`,
      avatar: avatarOf(item),
      run: () => {
        session.view.value = "conversations"
        session.open(item.id)
      }
    })),
    ...[...unique.values()].filter(({ handle }) => !known.has(handle)).map((
      { avatar_url: url, display_name: name, handle }
    ) => /** @type {Choice} */ ({
      key: `@${handle}`,
      kind: "People",
      label: name ?? handle,
      note: `@${handle}`,
      avatar: { name: handle, title: name, url },
      run: () => {
        session.view.value = "conversations"
        session.openWith(handle)
      }
    })),
    ...commandsOf(session)
  ]
}

/** The field of the switcher and what it offers. @param {{ session: Session, onChoose: (choice: Choice) => void }} props */
const Offers = ({ onChoose, session }) => {
  const [typed, setTyped] = useState("")
  const [people, setPeople] = useState(/** @type {ReadonlyArray<Person>} */ ([]))
  useEffect(() => void session.mentions.people().then(setPeople), [])
  const offers = chosenBy(choicesOf(session, people), typed)
  const listbox = useListbox({ offers, of: typed, onChoose })
  return html`<label class="field"><span>Go to, as <span class="handle">@${session.handle}</span></span>
    <input type="text" role="combobox" autofocus aria-expanded=${listbox.isOpen} ...${listbox.field} value=${typed}
      maxlength="100" autocomplete="off" autocapitalize="none" placeholder="A conversation, an agent or a command"
      onKeyDown=${listbox.onKey} onInput=${(/** @type {any} */ event) => setTyped(event.currentTarget.value)} /></label>
    <p class="unseen" role="status">${counted(offers.length, "choice")}</p>
    ${offers.length === 0 ? html`<p class="empty">Nothing has this name.</p>` : null}
    <ul class="choices-list" ...${listbox.list} aria-label="Choices">${
    offers.map((choice, at) =>
      html`<li key=${choice.key} ...${listbox.option(at)}>
        ${choice.avatar === undefined ? null : html`<${Avatar} ...${choice.avatar} />`}
        <span class="ellipsis"><bdi>${choice.label}</bdi>${
        choice.note === undefined ? null : html` <small><bdi>${choice.note}</bdi></small>`
      }</span>
        ${
        choice.kind === offers[at - 1]?.kind
          ? html`<span class="unseen">, ${choice.kind}</span>`
          : html`<small class="kind">${choice.kind}</small>`
      }</li>`
    )
  }</ul>`
}

/** The shortcuts of the page. @type {ReadonlyArray<readonly [keys: string, what: string]>} */
const shortcuts = [
  ["Ctrl K", "Go to a conversation, an agent or a command (⌘ K on a Mac)"],
  ["?", "Show this list"],
  ["Esc", "Close what was opened last"],
  ["Enter", "Send the message"],
  ["Shift Enter", "Begin a new line in the message"],
  ["@", "Complete the handle of an agent in a message"],
  ["↑ ↓", "Go to the message above or below, or to a search result"],
  ["Page Up, Page Down", "Go ten messages up or down"],
  ["Home, End", "Go to the first or the last loaded message"],
  ["R", "Reply to the message that has the focus"]
]

const Help = () =>
  html`<h2>Keyboard shortcuts</h2>
  <dl class="shortcuts">${
    shortcuts.map(([keys, what]) => html`<div key=${keys}><dt><kbd>${keys}</kbd></dt><dd>${what}</dd></div>`)
  }</dl>`

/** The switcher or the list of shortcuts, over the page. */
export const Overlay = () => {
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null))
  const kind = overlay.value
  const session = front.value
  const isOpen = kind !== null && session !== null
  // The switcher can open the list of shortcuts. The dialog must be open again before its event `close` arrives.
  useLayoutEffect(() => {
    if (!isOpen) dialog.current?.close()
    else if (dialog.current?.open === false) dialog.current.showModal()
  }, [isOpen, kind])
  const close = () => {
    overlay.value = null
  }
  const choose = (/** @type {Choice} */ { run }) => {
    // Closing the dialog returns the focus, so close it before the choice moves the focus.
    dialog.current?.close()
    close()
    run()
  }
  return html`<dialog class="overlay" ref=${dialog} aria-label=${
    kind === "help" ? "Keyboard shortcuts" : "Go to"
  } onClose=${() => {
    if (dialog.current?.open !== true) close()
  }}>
    ${!isOpen ? null : kind === "help" ? html`<${Help} />` : html`<${Offers} session=${session} onChoose=${choose} />`}
    <button type="button" class="quiet close" aria-label="Close" onClick=${close}>✕</button>
  </dialog>`
}
