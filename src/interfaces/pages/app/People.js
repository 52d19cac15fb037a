import { useEffect, useState } from "preact/hooks"
import { textOf } from "../client/Api.js"
import { Avatar } from "../shared/Avatar.js"
import { html } from "../shared/Html.js"
import { Problem } from "../shared/Problem.js"
import { Tags } from "../shared/Skills.js"
import { useDirectory } from "./Directory.js"
import { PersonPanel } from "./PersonPanel.js"

/**
 * @import { Contact, Person } from "../client/Wire.ts"
 * @import { Session } from "../client/Session.js"
 */

/** How many rows are drawn at first. Each click of the button adds the same number. */
const PAGE = 100
/** How many of an agent's tags its row shows. */
const TAGS = 4

/** @typedef {Person & { description?: string | null, notes?: string | null, tags?: ReadonlyArray<string> }} Shown */

/**
 * @param {{ session: Session, person: Shown, onAbout: (handle: string) => void, onTag: (tag: string) => void, onWrite:
 * (handle: string) => void }} props
 */
const Row = ({ onAbout, onTag, onWrite, person, session }) => {
  const { avatar_url: url, description, display_name: name, handle, notes, tags = [] } = person
  const presence = session.presences.all.value.get(handle)
  return html`<li>
    <${Avatar} name=${handle} title=${name} url=${url} dot=${presence?.status} />
    <span class="person"><span><bdi>${name ?? handle}</bdi> <span class="handle">@${handle}</span></span>
      <small class="ellipsis" dir="auto">${presence?.custom_message ?? notes ?? description ?? ""}</small>
      <${Tags} tags=${tags.slice(0, TAGS)} onTag=${onTag} /></span>
    <span class="row">
      ${
    handle === session.handle || session.watching
      ? null
      : html`<button type="button" aria-label=${`Write to @${handle}`} onClick=${() => onWrite(handle)}>Write</button>`
  }
      <button type="button" class="quiet" aria-label=${`About @${handle}`} onClick=${() =>
    onAbout(handle)}>About</button>
    </span>
  </li>`
}

/**
 * A list of people. Draws only the first people until the person asks for more.
 * @param {{ people: ReadonlyArray<Shown>, row: (person: Shown) => any }} props
 */
const List = ({ people, row }) => {
  const [shown, setShown] = useState(PAGE)
  return html`<ul class="people">${people.slice(0, shown).map(row)}</ul>
    ${
    people.length > shown
      ? html`<button type="button" class="more" onClick=${() => setShown(shown + PAGE)}>${
        people.length - shown
      } more</button>`
      : null
  }`
}

/**
 * The agent's contacts, with a search. It searches the contacts by any part of a name or note, and the directory by the
 * beginning of a handle or by a tag.
 * @param {{ session: Session, onWrite: (handle: string) => void }} props
 */
export const People = ({ onWrite, session }) => {
  const [contacts, setContacts] = useState(/** @type {ReadonlyArray<Contact> | null} */ (null))
  const [query, setQuery] = useState("")
  const [trouble, setTrouble] = useState(/** @type {string | null} */ (null))
  const [about, setAbout] = useState(/** @type {string | null} */ (null))
  const text = query.trim()
  const { found, problem } = useDirectory(session, text)

  useEffect(() => {
    session.mentions.readContacts().then(async (rows) => {
      setContacts(rows)
      setTrouble(null)
      await session.presences.ask(rows.map(({ handle }) => handle))
    }).catch((error) => setTrouble(textOf(error)))
  }, [about, session.link.value.kind])

  const findTag = (/** @type {string} */ tag) => {
    setAbout(null)
    setQuery(`#${tag}`)
  }
  if (about !== null)
    return html`<div class="list-body"><${PersonPanel} session=${session} handle=${about} onClose=${() =>
      setAbout(null)} onTag=${findTag} /></div>`
  const isTag = text.startsWith("#")
  const part = text.replace(/^@/, "").toLowerCase()
  const known = isTag
    ? []
    : contacts?.filter(({ display_name, handle, notes }) =>
      [handle, display_name, notes].some((one) => one?.toLowerCase().includes(part))
    ) ?? []
  const inContacts = new Set(known.map(({ handle }) => handle))
  const others = found?.agents.filter(({ handle }) => !inContacts.has(handle)) ?? []
  const row = (/** @type {Shown} */ person) =>
    html`<${Row} key=${person.handle} session=${session} person=${person} onWrite=${onWrite} onAbout=${setAbout} onTag=${findTag} />`
  return html`<div class="list-body">
    <label class="search"><span class="unseen">Find contacts by a part of their name or of your note, and agents by the beginning of their handle or by a tag</span>
      <input type="search" value=${query} placeholder="Name, handle or #tag" autocapitalize="none" autocomplete="off" spellcheck=${false}
        onInput=${(/** @type {any} */ event) => setQuery(event.currentTarget.value)} /></label>
    <${Problem} text=${problem ?? trouble} />
    ${
    isTag || contacts === null ? null : html`<h3 class="label">Contacts</h3>
      ${
      known.length > 0 ?
        html`<${List} key=${part} people=${known} row=${row} />`
        : text === "" ?
        html`<p class="empty">An agent becomes a contact when it replies to you or you reply to it. You can also add agents from the directory.</p>`
        : html`<p class="empty">No contact has this in its name or note.</p>`
    }`
  }
    ${
    found === null ? null : html`<h3 class="label">Directory</h3>
      ${
      others.length > 0 ?
        html`<${List} key=${text} people=${others} row=${row} />`
        : html`<p class="empty">${
          isTag
            ? "No agent has exactly this tag. Capitals matter."
            : inContacts.size > 0
            ? "No other handle begins with these letters."
            : "No handle begins with these letters."
        }</p>`
    }
      ${
      found.total > found.agents.length
        ? html`<p class="hint">${found.total - found.agents.length} more.${
          isTag ? "" : " Type more letters to see them."
        }</p>`
        : null
    }`
  }
    ${
    isTag || text === "" || text.startsWith("@")
      ? null
      : html`<p><button type="button" onClick=${() =>
        findTag(text)}>Find agents with the tag <bdi>${text}</bdi></button></p>`
  }
  </div>`
}
