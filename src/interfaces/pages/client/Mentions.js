/**
 * @import { Contact, Person } from "./Wire.ts"
 * @import { Api } from "./Api.js"
 * @import { Conversations } from "./Conversations.js"
 */

const MOST_CONTACTS = 10_000

/** The agents that text fields offer: the contacts, and in the composer also the members of the conversation. */
export class Mentions {
  /** @param {Api} api @param {Conversations} conversations @param {() => string} handle the agent's own handle */
  constructor(api, conversations, handle) {
    this.api = api
    this.conversations = conversations
    this.handle = handle
    /** The agent's contacts, as they were read last. @type {Promise<ReadonlyArray<Contact>> | undefined} */
    this.contacts = undefined
  }

  /** Reads the agent's contacts. @returns {Promise<ReadonlyArray<Contact>>} */
  readContacts() {
    const contacts = this.api.all("v1/contacts", "contacts", MOST_CONTACTS)
    this.contacts = contacts
    contacts.catch(() => {
      if (this.contacts === contacts) this.contacts = undefined
    })
    return contacts
  }

  /**
   * The agents that the composer offers after `@`: first the members of the open conversation, then the contacts.
   * @returns {Promise<ReadonlyArray<Person>>}
   */
  async people() {
    const contacts = await (this.contacts ?? this.readContacts()).catch(() => [])
    const id = this.conversations.place.peek()?.id ?? ""
    const members = id.startsWith("grp_") ? this.conversations.group(id).peek()?.members : undefined
    const others = members ?? this.conversations.list.peek().find((one) => one.id === id)?.participants ?? []
    return [...others, ...contacts].filter(({ handle }) => handle !== this.handle())
  }
}
