import { useEffect, useId, useRef, useState } from "preact/hooks"
import { sentenceOf } from "../client/Refusals.js"
import { handleOf, standingOf } from "../client/Standing.js"
import { Avatar } from "../shared/Avatar.js"
import { html } from "../shared/Html.js"
import { counted } from "../shared/Texts.js"
import { offered } from "../tab/Mentions.js"
import { useDirectory } from "./Directory.js"
import { OfferedAgents, useListbox } from "./Listbox.js"
import { StandingText } from "./Standing.js"

/**
 * @import { Aim, Standing } from "../client/Standing.js"
 * @import { Contact, Person } from "../client/Wire.ts"
 * @import { Session } from "../client/Session.js"
 */

/** The most agents that are offered at once. */
const MOST_OFFERED = 50

/**
 * The agents to offer for a typed text: contacts, then agents of the directory, then the handle as it is typed.
 * @param {Session} session
 * @param {string} text
 * @param {(handle: string) => boolean} isLeftOut
 * @param {boolean} isOpen
 */
const useOffers = (session, text, isLeftOut, isOpen) => {
  const [contacts, setContacts] = useState(/** @type {ReadonlyArray<Contact>} */ ([]))
  const [isAsked, setAsked] = useState(false)
  useEffect(() => {
    if (isOpen) setAsked(true)
  }, [isOpen])
  useEffect(() => {
    // Without the contacts, the field still takes handles, and the next request shows why the server refuses requests.
    if (isAsked) session.mentions.readContacts().then(setContacts, () => undefined)
  }, [isAsked])
  const begin = handleOf(text)
  const { found } = useDirectory(session, isOpen && !text.startsWith("#") ? text.trim() : "")
  if (!isOpen) return []
  const people = [...contacts, ...found?.agents ?? []].filter(({ handle }) => !isLeftOut(handle))
  const offers = offered(people, begin, MOST_OFFERED)
  const exact = offers.find(({ handle }) => handle === begin)
  if (exact !== undefined) return [exact, ...offers.filter((one) => one !== exact)]
  return /^[a-z0-9-]{3,30}$/.test(begin) && !isLeftOut(begin)
    ? [...offers, { handle: begin, display_name: null, avatar_url: null, note: "exactly this handle" }]
    : offers
}

/** @param {{ person: Person, onRemove: () => void }} props */
const Chip = ({ onRemove, person: { avatar_url: url, display_name: name, handle } }) =>
  html`<li class="picked"><${Avatar} name=${handle} title=${name} url=${url} /><span class="ellipsis"><bdi>${
    name ?? handle
  }</bdi>${
    name === null || name === handle ? null : html` <span class="handle">@${handle}</span>`
  }</span><button type="button" class="quiet" aria-label=${`Remove @${handle}`} onClick=${onRemove}>✕</button></li>`

/**
 * The agents that a field has collected. An agent is checked before it becomes a chip, and the field keeps the handle of
 * an agent that it refuses.
 * @param {object} options
 * @param {Session} options.session
 * @param {Aim} options.aim
 * @param {number} options.most
 * @param {(handle: string) => string | undefined} options.refusalOf says why an agent cannot be chosen here
 */
const useChosen = ({ aim, most, refusalOf, session }) => {
  const [chosen, setChosen] = useState(/** @type {ReadonlyArray<Person>} */ ([]))
  const [standing, setStanding] = useState(/** @type {Standing | null} */ (null))
  /** The chosen agents now, while `chosen` has those of the last draw. */
  const all = useRef(chosen)
  const queue = useRef(/** @type {Promise<unknown>} */ (Promise.resolve()))
  const blocked = session.conversations.blocked.value
  // The person has unblocked the agent.
  const isOutdated = standing?.isBlocked === true && !blocked.has(standing.handle)
  /** @param {string} typed @returns {Promise<Standing>} */
  const check = async (typed) => {
    const handle = handleOf(typed)
    const refused = (/** @type {string} */ text) => ({ handle, card: null, text, isRefused: true, isBlocked: false })
    if (all.current.length >= most) return refused(`You can choose at most ${most} agents at once.`)
    const reason = refusalOf(handle)
    if (reason !== undefined) return refused(reason)
    return standingOf(session, typed, aim).catch((error) =>
      refused(sentenceOf(error, { own: session.handle, other: handle }))
    )
  }
  const keep = (/** @type {ReadonlyArray<Person>} */ next) => {
    all.current = next
    setChosen(next)
  }
  /** @param {ReadonlyArray<string>} typed */
  const addNow = async (typed) => {
    setStanding(null)
    for (const [index, one] of typed.entries()) {
      if (all.current.some(({ handle }) => handle === handleOf(one))) continue
      const standing = await check(one)
      if (standing.text !== null) setStanding(standing)
      if (standing.isRefused || standing.card === null)
        return { all: all.current, refused: typed.slice(index).join(", ") }
      keep([...all.current, standing.card])
    }
    return { all: all.current, refused: undefined }
  }
  return {
    chosen,
    keep,
    standing: isOutdated ? null : standing,
    forget: () => setStanding(null),
    /**
     * Adds agents, after those that are being checked. Returns all chosen agents. `refused` is the rest of the text,
     * from the first agent that cannot be chosen.
     * @param {ReadonlyArray<string>} typed
     */
    add: (typed) => {
      const added = queue.current.then(() => addNow(typed))
      queue.current = added
      return added
    }
  }
}

/**
 * A field for agents. It offers contacts and agents of the directory while the person types, and takes handles that are
 * typed in full. The chosen agents are chips. Backspace in the empty field removes the last chip.
 * @param {object} options
 * @param {Session} options.session
 * @param {string} options.label
 * @param {Aim} options.aim what the agents are chosen for
 * @param {number} [options.most] how many agents can be chosen
 * @param {(handle: string) => string | undefined} [options.refusalOf] says why an agent cannot be chosen here
 * @param {(person: Person) => void} [options.onOne] takes a chosen agent instead of a chip
 * @returns `view` is the field. `settle` adds what is typed, and returns all chosen agents; undefined if the field says
 * why an agent cannot be chosen. `clear` removes all chips.
 */
export const useAgentField = ({ aim, label, most = 255, onOne, refusalOf = () => undefined, session }) => {
  const id = useId()
  const [text, setText] = useState("")
  const [isOpen, setOpen] = useState(false)
  const input = useRef(/** @type {HTMLInputElement | null} */ (null))
  const { add, chosen, forget, keep, standing } = useChosen({ session, aim, most, refusalOf })
  const isLeftOut = (/** @type {string} */ handle) =>
    handle === session.handle || refusalOf(handle) !== undefined || chosen.some((one) => one.handle === handle)
  const offers = useOffers(session, text, isLeftOut, isOpen)
  const take = async (/** @type {ReadonlyArray<string>} */ typed) => {
    setOpen(false)
    setText("")
    const { all, refused } = await add(typed)
    if (refused !== undefined) {
      setText((now) => now === "" ? refused : now)
      input.current?.focus()
      return undefined
    }
    const [one] = all
    if (onOne !== undefined && one !== undefined) {
      keep([])
      onOne(one)
    }
    return all
  }
  const listbox = useListbox({
    offers,
    of: text,
    first: text === "" ? -1 : 0,
    onChoose: ({ handle }) => void take([handle]),
    onClose: () => setOpen(false)
  })
  useEffect(() => {
    if (listbox.isOpen) listbox.list.ref.current?.scrollIntoView({ block: "nearest" })
  }, [listbox.isOpen])
  const settle = () => take(text.split(/\s*[,;]\s*|\s+(?=@)/).filter((one) => one.trim() !== ""))
  const onKey = (/** @type {KeyboardEvent} */ event) => {
    if (listbox.onKey(event)) return
    if (event.key === "ArrowDown") setOpen(true)
    else if (event.key === "Backspace" && text === "") keep(chosen.slice(0, -1))
    else if (
      text.trim() !== "" && onOne === undefined && (event.key === "," || (event.key === "Enter" && !event.isComposing))
    )
      void settle()
    else return
    event.preventDefault()
  }
  return {
    chosen,
    settle,
    clear: () => {
      keep([])
      setText("")
      forget()
    },
    view: html`<div class="field agent-field">
      <label for=${id}>${label}</label>
      <div class="agent-input">
        ${
      chosen.length === 0 ?
        null :
        html`<ul aria-label="Chosen agents">${
          chosen.map((person) =>
            html`<${Chip} key=${person.handle} person=${person} onRemove=${() => {
              keep(chosen.filter((one) => one !== person))
              input.current?.focus()
            }} />`
          )
        }</ul>`
    }
        <input id=${id} ref=${input} role="combobox" required=${
      onOne !== undefined
    } aria-expanded=${listbox.isOpen} ...${listbox.field} value=${text}
          autocomplete="off" autocapitalize="none" spellcheck=${false} placeholder=${
      chosen.length === 0 ? "Name or handle" : ""
    }
          onKeyDown=${onKey} onClick=${() => setOpen(true)} onBlur=${() => setOpen(false)}
          onInput=${(/** @type {any} */ event) => {
      setText(event.currentTarget.value)
      setOpen(true)
      forget()
    }} />
        <${OfferedAgents} listbox=${listbox} people=${offers} below />
      </div>
      <span class="unseen" role="status">${
      listbox.isOpen
        ? `${counted(offers.length, "agent")} to choose from`
        : chosen.length === 0
        ? ""
        : `Chosen: ${chosen.map(({ handle }) => `@${handle}`).join(", ")}`
    }</span>
      <${StandingText} session=${session} standing=${standing} />
    </div>`
  }
}
