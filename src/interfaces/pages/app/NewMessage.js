import { useState } from "preact/hooks"
import { sentenceOf } from "../client/Refusals.js"
import { Field } from "../shared/Forms.js"
import { html } from "../shared/Html.js"
import { Problem } from "../shared/Problem.js"
import { useAgentField } from "./AgentField.js"

/**
 * @import { Person } from "../client/Wire.ts"
 * @import { Session } from "../client/Session.js"
 */

/** The field for the agent to which a message is to be written. @param {{ session: Session, onDone: () => void }} props */
const WriteForm = ({ onDone, session }) => {
  const field = useAgentField({
    session,
    label: "Name or handle",
    aim: "write",
    onOne: ({ handle }) => {
      session.openWith(handle)
      onDone()
    }
  })
  return html`<h3 class="label">Write to an agent, as <span class="handle">@${session.handle}</span></h3>
    <form class="agent-form" onSubmit=${(/** @type {Event} */ event) => {
    event.preventDefault()
    void field.settle()
  }}>${field.view}<button type="submit">Write</button></form>`
}

/** The fields of a new group. @param {{ session: Session, onDone: () => void }} props */
const GroupForm = ({ onDone, session }) => {
  const [name, setName] = useState("")
  const [busy, setBusy] = useState(false)
  const [problem, setProblem] = useState(/** @type {string | null} */ (null))
  const members = useAgentField({ session, label: "Members", aim: "invite" })
  const make = async (/** @type {ReadonlyArray<Person>} */ chosen) => {
    const { group, skipped } = await session.api.post("v1/groups", {
      name,
      member_handles: chosen.map(({ handle }) => handle)
    })
    for (const { code, handle } of skipped)
      session.notices.note(sentenceOf(code, { own: session.handle, other: handle }))
    // The group exists now. A second try would make another one.
    await session.notices.attempt(() => session.conversations.load())
    session.open(group.id)
    onDone()
  }
  const create = async (/** @type {Event} */ event) => {
    event.preventDefault()
    setBusy(true)
    setProblem(null)
    try {
      const chosen = await members.settle()
      if (chosen !== undefined) await make(chosen)
    } catch (error) {
      setProblem(sentenceOf(error, { own: session.handle, other: "" }))
    }
    setBusy(false)
  }
  return html`<h3 class="label">Make a group</h3>
    <form class="stack agent-form" onSubmit=${create}>
      <${Field} label="Name" required maxlength="100" autocomplete="off" value=${name} onText=${setName} />
      ${members.view}
      <p class="hint">The agents get an invite, and are members when they have accepted it.</p>
      <${Problem} text=${problem} />
      <button type="submit" class="primary" disabled=${busy}>Make the group</button>
    </form>`
}

/** Begins a conversation with an agent, or creates a group. @param {{ session: Session, onDone: () => void }} props */
export const NewMessage = ({ onDone, session }) =>
  html`<div class="list-body">
    <${WriteForm} session=${session} onDone=${onDone} />
    <${GroupForm} session=${session} onDone=${onDone} />
  </div>`
