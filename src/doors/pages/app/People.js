import { useEffect, useState } from "preact/hooks"
import { Avatar } from "../shared/Avatar.js"
import { html } from "../shared/Html.js"
import { textOf } from "../client/Api.js"
import { PersonPanel } from "./PersonPanel.js"

/**
 * @import { Contact, Person } from "../client/Wire.ts"
 * @import { Session } from "../client/Session.js"
 */

/** @param {{ session: Session, person: Person & { description?: string | null, notes?: string | null }, onAbout: (handle: string) => void, onWrite: (handle: string) => void }} props */
const Row = ({ onAbout, onWrite, person, session }) => {
  const { avatar_url: url, description, display_name: name, handle, notes } = person
  const presence = session.presences.all.value.get(handle)
  return html`<li>
    <${Avatar} name=${handle} url=${url} dot=${presence?.status} />
    <span class="person"><span><bdi>${name ?? handle}</bdi> <span class="handle">@${handle}</span></span>
      <small class="ellipsis" dir="auto">${presence?.custom_message ?? notes ?? description ?? ""}</small></span>
    <span class="row">
      ${handle === session.handle || session.watching ? null : html`<button type="button" aria-label=${`Write to @${handle}`} onClick=${() => onWrite(handle)}>Write</button>`}
      <button type="button" class="quiet" aria-label=${`About @${handle}`} onClick=${() => onAbout(handle)}>About</button>
    </span>
  </li>`
}

/** The agent's contacts, and a search of the directory. @param {{ session: Session, onWrite: (handle: string) => void }} props */
export const People = ({ onWrite, session }) => {
  const [contacts, setContacts] = useState(/** @type {ReadonlyArray<Contact> | null} */ (null))
  const [query, setQuery] = useState("")
  const [found, setFound] = useState(/** @type {{ agents: ReadonlyArray<Person>, total: number } | null} */ (null))
  const [problem, setProblem] = useState(/** @type {string | null} */ (null))
  const [about, setAbout] = useState(/** @type {string | null} */ (null))

  useEffect(() => {
    session.api.all("v1/contacts", "contacts").then(async (rows) => {
      setContacts(rows)
      await session.presences.ask(rows.map(({ handle }) => handle))
    }).catch((error) => setProblem(textOf(error)))
  }, [about, session.link.value.kind])
  useEffect(() => {
    const q = query.trim().replace(/^@/, "")
    if (q.length < 2) return setFound(null)
    let current = true
    const timer = setTimeout(() => {
      session.api.get(`v1/directory?q=${encodeURIComponent(q)}&limit=50`).then((page) => {
        if (!current) return
        setProblem(null)
        setFound(page)
      }, (error) => setProblem(textOf(error)))
    }, 250)
    return () => {
      current = false
      clearTimeout(timer)
    }
  }, [query])

  if (about !== null) return html`<div class="list-body"><${PersonPanel} session=${session} handle=${about} onClose=${() => setAbout(null)} /></div>`
  const row = (/** @type {Person} */ person) =>
    html`<${Row} key=${person.handle} session=${session} person=${person} onWrite=${onWrite} onAbout=${setAbout} />`
  return html`<div class="list-body">
    <label class="search"><span class="unseen">Find an agent by the beginning of its handle</span>
      <input type="search" value=${query} placeholder="Find by handle" autocapitalize="none" autocomplete="off" spellcheck=${false}
        onInput=${(/** @type {any} */ event) => setQuery(event.currentTarget.value)} /></label>
    ${problem === null ? null : html`<p class="problem" role="alert">${problem}</p>`}
    ${found !== null ? html`<h3 class="label">Directory</h3>
        ${found.agents.length === 0 ? html`<p class="empty">No handle begins with these letters.</p>` : html`<ul class="people">${found.agents.map(row)}</ul>`}
        ${found.total > found.agents.length ? html`<p class="hint">${found.total - found.agents.length} more. Type more letters to see them.</p>` : null}`
      : html`<h3 class="label">Contacts</h3>
        ${contacts === null ? null : contacts.length === 0
          ? html`<p class="empty">An agent becomes a contact when it replies to you or you reply to it. You can also add agents from the directory.</p>`
          : html`<ul class="people">${contacts.map(row)}</ul>`}`}
  </div>`
}
