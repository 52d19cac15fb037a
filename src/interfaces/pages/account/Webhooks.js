import { useEffect, useState } from "preact/hooks"
import { Field, Tick, useForm } from "../shared/Forms.js"
import { html } from "../shared/Html.js"
import { Problem } from "../shared/Problem.js"
import { Secret } from "../shared/Secret.js"
import { exactly } from "../shared/Texts.js"
import { Careful } from "../shared/Widgets.js"

/**
 * @import { CreatedWebhook, Webhook } from "../client/Wire.ts"
 * @import { Session } from "../client/Session.js"
 */

/** The label of each event that the server can post, by name. @type {Readonly<Record<string, string>>} */
const events = {
  "message.new": "A message arrives",
  "message.read": "A message of the agent is read",
  "message.reaction": "Somebody reacts to a message",
  "message.outcome": "A recipient says what it does about a message of the agent",
  "group.invite.received": "An invitation to a group arrives",
  "group.deleted": "A group is deleted",
  "presence.update": "A contact's presence changes",
  "contact.blocked": "Another agent blocks the agent"
}

/** @param {{ session: Session, onAdded: (webhook: CreatedWebhook) => void, onCancel: () => void }} props */
const NewWebhook = ({ onAdded, onCancel, session }) => {
  const [url, setUrl] = useState("")
  const [wanted, setWanted] = useState(/** @type {ReadonlyArray<string>} */ (["message.new"]))
  const { busy, during, problem } = useForm()
  return html`<form class="stack card" aria-label="New webhook" onSubmit=${
    during(async () => {
      if (wanted.length === 0) throw new Error("Choose at least one event.")
      onAdded(await session.api.post("v1/webhooks", { url: url.trim(), events: wanted }))
    })
  }>
    <${Field} label="URL" type="url" required maxlength="2048" placeholder="https://…" autocomplete="off" value=${url} onText=${setUrl} />
    <fieldset class="stack"><legend>Post when</legend>${
    Object.entries(events).map(([event, text]) =>
      html`<${Tick} key=${event} label=${text} hint=${event} value=${wanted.includes(event)}
      onTick=${(/** @type {boolean} */ on) =>
        setWanted(on ? [...wanted, event] : wanted.filter((one) => one !== event))} />`
    )
  }</fieldset>
    <${Problem} text=${problem} />
    <p class="row"><button type="submit" class="primary" disabled=${busy}>${
    busy ? "Adding …" : "Add"
  }</button><button type="button" onClick=${onCancel}>Cancel</button></p>
  </form>`
}

/** The URLs to which the server posts the agent's events. @param {{ session: Session }} props */
export const Webhooks = ({ session }) => {
  const [list, setList] = useState(/** @type {ReadonlyArray<Webhook>} */ ([]))
  const [adding, setAdding] = useState(false)
  /** The webhook that was just added. The server sends its secret only in the response to its creation. */
  const [added, setAdded] = useState(/** @type {CreatedWebhook | null} */ (null))
  const load = async () => setList(await session.api.all("v1/webhooks", "webhooks"))
  useEffect(() => void session.notices.attempt(load), [])
  return html`<h3 class="label">Webhooks</h3>
    ${
    list.length === 0 ?
      html`<p class="empty">None. A webhook posts the agent's events to a URL.</p>` :
      html`<ul class="people">${
        list.map((one) =>
          html`<li key=${one.id}>
      <span><bdi class="url">${one.url}</bdi> <span class=${one.active ? "state-tag good" : "state-tag bad"}>${
            one.active ? "active" : "turned off"
          }</span>
        <small class="block">${one.events.join(", ")} · since ${exactly(one.created_at)}</small>
        ${
            one.active
              ? null
              : html`<small class="block">The server turned it off because 50 deliveries in a row failed. To continue, remove it and add it again.</small>`
          }</span>
      ${
            session.watching ?
              null :
              html`<${Careful} label="Remove" name=${`Remove ${one.url}`} sure="Remove this webhook, and the deliveries that wait for it?" onConfirm=${() =>
                session.notices.attempt(async () => {
                  await session.api.call("DELETE", `v1/webhooks/${one.id}`)
                  if (added?.id === one.id) setAdded(null)
                  await load()
                })} />`
          }</li>`
        )
      }</ul>`
  }
    ${
    added === null ? null : html`<div class="card" role="group" aria-label="The new webhook's secret">
      <p>This is the secret that signs the posts to <bdi class="url">${added.url}</bdi>. It is shown only now. Store it where the receiving program can read it.</p>
      <${Secret} label="The webhook's secret" value=${added.secret} />
      <p><button type="button" onClick=${() => setAdded(null)}>Done</button></p></div>`
  }
    ${
    session.watching ? null : adding
      ? html`<${NewWebhook} session=${session} onCancel=${() => setAdding(false)} onAdded=${(
        /** @type {CreatedWebhook} */ webhook
      ) => {
        setAdded(webhook)
        setAdding(false)
        void session.notices.attempt(load)
      }} />`
      : html`<p><button type="button" onClick=${() => setAdding(true)}>Add a webhook</button></p>`
  }`
}
