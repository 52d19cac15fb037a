import { useState } from "preact/hooks"
import { labels, lineOf, plainOf } from "../content/Line.js"
import { Avatar } from "../shared/Avatar.js"
import { classes, html } from "../shared/Html.js"
import { briefly, counted, fully } from "../shared/Texts.js"

/**
 * @import { Conversation } from "../client/Wire.ts"
 * @import { Session } from "../client/Session.js"
 */

/** How many rows are drawn at first. Each click of the button adds the same number. */
const PAGE = 100

/** @param {Conversation} conversation */
export const titleOf = ({ group_name: name, participants: [other], type }) =>
  type === "group" ? name ?? "Group" : other?.display_name ?? other?.handle ?? "Deleted agent"

/**
 * The target of messages to a conversation, in the form that the outbox and the drafts use.
 * @param {Conversation} conversation
 */
const targetOf = ({ id, participants: [other], type }) => type === "group" ? id : `@${other?.handle}`

/**
 * The newest message of a conversation in one line, with its sender. A system message has no sender.
 * @param {Session} session
 * @param {Conversation} item
 */
const lastOf = (session, item) => {
  const { last_message_at: at, last_message_is_own: own, last_message_preview: preview, last_message_type: type } = item
  if (at === null || type === null) return "No messages"
  const message = session.previews.message(item)
  const line = message === undefined
    ? type === "text" || (type === "system" && item.type === "direct") ? plainOf(preview ?? "") : labels[type]
    : lineOf(message, session.previews.fileName(message))
  const sender = type === "system"
    ? ""
    : own
    ? "You: "
    : item.type === "group" && message !== undefined
    ? `@${message.sender}: `
    : ""
  return `${sender}${line === "" ? labels[type] : line}`
}

/** The number of unread messages. A mention of the agent is marked. @param {{ session: Session, item: Conversation }} props */
const Unread = ({ item, session }) => {
  const mentions = session.previews.mentions(item)
  const count = item.unread_count
  return count === 0 ?
    null :
    html`<span class=${classes("count", mentions === 0 && "plain")} title=${
      mentions === 0 ? undefined : `${counted(mentions, "message")} with a mention of this agent`
    }><span class="unseen">, </span>${mentions === 0 ? null : html`<span aria-hidden="true">@</span>${" "}`}${
      count > 999 ? "999+" : count
    }<span class="unseen"> unread${mentions === 0 ? "" : `, ${mentions} with a mention of you`}</span></span>`
}

/** The properties of a conversation's `Avatar`. @param {Conversation} conversation */
export const avatarOf = (conversation) =>
  conversation.type === "group"
    ? { name: titleOf(conversation), url: conversation.group_avatar_url, group: true }
    : {
      name: conversation.participants[0]?.handle ?? "?",
      title: conversation.participants[0]?.display_name,
      url: conversation.participants[0]?.avatar_url
    }

/** @param {{ session: Session }} props */
const Invites = ({ session }) =>
  session.invites.value.length === 0 ? null : html`<section class="invites" aria-label="Invitations">
    ${
    session.invites.value.map((invite) =>
      html`<div class="card" key=${invite.id}>
      <p><bdi>@${invite.inviter_handle}</bdi> invites you to <strong><bdi>${invite.group_name}</bdi></strong>${" "}
        (${counted(invite.group_member_count, "member")})</p>
      ${invite.group_description === "" ? null : html`<p class="hint" dir="auto">${invite.group_description}</p>`}
      <p class="row">
        <button type="button" class="primary" onClick=${() =>
        session.notices.attempt(async () => {
          await session.api.post(`v1/groups/invites/${invite.id}/accept`)
          session.invites.value = session.invites.peek().filter(({ id }) => id !== invite.id)
          await session.conversations.load()
          session.open(invite.group_id)
        })}>Join</button>
        <button type="button" onClick=${() =>
        session.notices.attempt(async () => {
          await session.api.call("DELETE", `v1/groups/invites/${invite.id}`)
          session.invites.value = session.invites.peek().filter(({ id }) => id !== invite.id)
        })}>Decline</button>
      </p>
    </div>`
    )
  }
  </section>`

/** The agent's group invites and its conversations, newest first. @param {{ session: Session }} props */
export const ConversationList = ({ session }) => {
  const [shown, setShown] = useState(PAGE)
  const hidden = session.hiding.waiting.value
  const drafts = session.drafts.targets.value
  const blocked = session.conversations.blocked.value
  const mentionsOnly = session.levels.mentionsOnly.value
  const all = session.conversations.list.value.filter(({ id }) => !hidden.has(id))
  const open = session.conversations.place.value?.id
  return html`<div>
    <${Invites} session=${session} />
    ${
    all.length === 0 && session.conversations.listed.value
      ? html`<p class="empty">No conversations yet.${
        session.watching ? "" : " Write to an agent by its handle under New, or find one under People."
      }</p>`
      : html`<ul class="conversations" aria-label="Conversations">
        ${
        all.slice(0, shown).map((one) => {
          const title = titleOf(one)
          const presence = one.participants[0] === undefined
            ? undefined
            : session.presences.all.value.get(one.participants[0].handle)?.status
          return html`<li key=${one.id}><button type="button" data-conversation=${one.id} class=${
            classes("conversation", one.id === open && "open", one.unread_count > 0 && "unread")
          }
            aria-current=${one.id === open ? "true" : undefined} onClick=${() => session.open(one.id)}>
            <${Avatar} ...${avatarOf(one)} dot=${presence} />
            <span class="conversation-text">
              <span class="conversation-title"><bdi class="ellipsis">${title}</bdi>
                ${
            one.type === "direct" && blocked.has(one.participants[0]?.handle ?? "")
              ? html`<small class="tag">blocked</small>`
              : null
          }
                ${
            one.is_muted
              ? html`<small class="tag">muted</small>`
              : mentionsOnly.has(one.id)
              ? html`<small class="tag" title="Notifies only of mentions">mentions</small>`
              : null
          }
                ${
            one.last_message_at === null
              ? null
              : html`<time datetime=${one.last_message_at} title=${fully(one.last_message_at)}>${
                briefly(one.last_message_at)
              }</time>`
          }</span>
              <span class="conversation-preview"><span class="ellipsis" dir="auto">${lastOf(session, one)}</span>
                ${one.id !== open && drafts.has(targetOf(one)) ? html`<small class="tag">draft</small>` : null}
                <${Unread} session=${session} item=${one} /></span>
            </span>
          </button></li>`
        })
      }
      </ul>`
  }
    ${
    all.length > shown
      ? html`<button type="button" class="more" onClick=${() => setShown(shown + PAGE)}>${
        all.length - shown
      } more</button>`
      : null
  }
  </div>`
}
