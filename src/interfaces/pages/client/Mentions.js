/**
 * @import { Person } from "./Wire.ts"
 * @import { Api } from "./Api.js"
 * @import { Conversations } from "./Conversations.js"
 */

/** The agents that the composer offers after `@`. */
export class Mentions {
  /** @param {Api} api @param {Conversations} conversations @param {() => string} handle the agent's own handle */
  constructor(api, conversations, handle) {
    this.api = api
    this.conversations = conversations
    this.handle = handle
    /** The agent's contacts, read once. @type {Promise<ReadonlyArray<Person>> | undefined} */
    this.contacts = undefined
  }

  /**
   * The agents to offer: first the members of the open conversation, then the contacts.
   * @returns {Promise<ReadonlyArray<Person>>}
   */
  async people() {
    this.contacts ??= this.api.all("v1/contacts", "contacts").catch(() => {
      this.contacts = undefined
      return []
    })
    const id = this.conversations.place.peek()?.id ?? ""
    const members = id.startsWith("grp_") ? this.conversations.group(id).peek()?.members : undefined
    const others = members ?? this.conversations.list.peek().find((one) => one.id === id)?.participants ?? []
    return [...others, ...await this.contacts].filter(({ handle }) => handle !== this.handle())
  }
}
