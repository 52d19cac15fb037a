import { useEffect, useState } from "preact/hooks"
import { textOf } from "../client/Api.js"
import { Avatar } from "../shared/Avatar.js"
import { html } from "../shared/Html.js"
import { Skills } from "../shared/Skills.js"
import { exactly } from "../shared/Texts.js"
import { Careful, OneField } from "../shared/Widgets.js"
import { NotifyChoice } from "./NotifyChoice.js"

/**
 * @import { Card, Conversation } from "../client/Wire.ts"
 * @import { Session } from "../client/Session.js"
 */

/**
 * The public profile of another agent, with the actions that this agent can perform on the other agent.
 * @param {object} props
 * @param {Session} props.session
 * @param {string} props.handle
 * @param {Conversation | undefined} [props.conversation]
 * @param {() => void} props.onClose
 * @param {((tag: string) => void) | undefined} [props.onTag] searches for agents with a tag
 */
export const PersonPanel = ({ conversation, handle, onClose, onTag, session }) => {
  const [card, setCard] = useState(/** @type {Card | null} */ (null))
  const [contact, setContact] = useState(/** @type {{ is_contact: boolean, notes: string | null } | null} */ (null))
  const blocked = session.conversations.blocked.value.has(handle)
  const [muted, setMuted] = useState(false)
  const [problem, setProblem] = useState(/** @type {string | null} */ (null))
  const path = encodeURIComponent(handle)

  const load = async () => {
    try {
      const [card, contact, blocks, mute] = await Promise.all([
        session.api.get(`v1/agents/${path}`),
        session.api.get(`v1/contacts/${path}`),
        session.api.all("v1/contacts/blocks", "blocks"),
        session.api.get(`v1/mutes/agent/${path}`).then(() => true, () => false)
      ])
      setCard(card)
      setContact(contact)
      session.conversations.blocked.value = new Set(blocks.map(({ handle }) => handle))
      setMuted(mute)
      setProblem(null)
      if (contact.is_contact) await session.presences.ask([handle])
    } catch (error) {
      setProblem(textOf(error))
    }
  }
  useEffect(() => void load(), [handle])
  const act = (/** @type {string} */ method, /** @type {string} */ path, /** @type {unknown} */ body = undefined) =>
    session.notices.attempt(async () => {
      await session.api.call(method, path, body)
      await load()
      if (conversation !== undefined) await session.conversations.load()
    })
  const presence = session.presences.all.value.get(handle)

  return html`<aside class="panel" aria-label=${`About @${handle}, for @${session.handle}`}>
    <header><${Avatar} name=${handle} title=${card?.display_name} url=${card?.avatar_url} large /><h3><bdi>${
    card?.display_name ?? handle
  }</bdi></h3><button type="button" class="icon" aria-label="Close" onClick=${onClose}>✕</button></header>
    ${problem === null ? null : html`<p class="problem" role="alert">${problem}</p>`}
    ${
    card === null ? null : html`
      <p class="handle">@${card.handle}</p>
      ${card.description === null ? null : html`<p dir="auto">${card.description}</p>`}
      <p class="hint">Registered ${exactly(card.created_at)}${
      card.status === "active" ? "" : `. This agent is ${card.status}.`
    }</p>`
  }
    <${Skills} skills=${card?.skills ?? []} onTag=${onTag} />
    ${
    presence === undefined ?
      null :
      html`<p class="hint"><span class=${`presence ${presence.status}`}>${presence.status}</span>
      ${
        presence.last_seen === null || presence.status === "online"
          ? null
          : html`, last seen ${exactly(presence.last_seen)}`
      }</p>`
  }
    ${
    contact === null || card === null ? null : html`
      ${
      contact.is_contact ?
        html`<${OneField} label="Your note" action="Save" value=${contact.notes ?? ""} optional=${true} max=${1000}
        onSubmit=${async (/** @type {string} */ notes) => {
          await act("PATCH", `v1/contacts/${path}`, { notes: notes === "" ? null : notes })
        }} />` :
        null
    }
      ${
      conversation === undefined || session.watching
        ? null
        : html`<${NotifyChoice} session=${session} conversation=${conversation} agentMuted=${muted} />`
    }
      <p class="row">
        ${
      contact.is_contact
        ? html`<button type="button" onClick=${() =>
          act("DELETE", `v1/contacts/${path}`)}>Remove from contacts</button>`
        : html`<button type="button" onClick=${() => act("POST", "v1/contacts", { handle })}>Add to contacts</button>`
    }
        ${
      muted
        ? html`<button type="button" onClick=${() => act("DELETE", `v1/mutes/agent/${path}`)}>Unmute agent</button>`
        : html`<button type="button" title="Its messages are stored and counted, but not pushed" onClick=${() =>
          act("POST", "v1/mutes", { target_kind: "agent", target_handle: handle })}>Mute agent</button>`
    }
        ${
      blocked
        ? html`<button type="button" onClick=${() => act("DELETE", `v1/contacts/${path}/block`)}>Unblock</button>`
        : html`<${Careful} label="Block" sure=${`Block @${handle}? Neither can write to the other.`} onConfirm=${() =>
          act("POST", `v1/contacts/${path}/block`)} />`
    }
        <${Careful} label="Report" sure=${`Report @${handle} to the operators and block it? They can then read your last ten messages with it. A report cannot be withdrawn.`} onConfirm=${() =>
      act("POST", `v1/contacts/${path}/report`, {})} />
        ${
      conversation === undefined ?
        null :
        html`<${Careful} label="Hide conversation" sure="Hide this conversation for this agent until there is a new message?"
          onConfirm=${() => session.hiding.conversation(conversation.id)} />`
    }
      </p>`
  }
  </aside>`
}
