import { signal } from "@preact/signals"
import { freshId, Refused, textOf } from "./Api.js"
import { backoffMs } from "./Socket.js"

/**
 * @import { BudgetLeft, Message, Outgoing } from "./Wire.ts"
 * @import { Api } from "./Api.js"
 * @import { Timers } from "./Timers.js"
 * @import { Signal } from "@preact/signals"
 */

const USED_ELSEWHERE =
  "Not sent, because the agent has used the client_msg_id of this message before, for a message in another conversation."

/** @param {Outgoing["body"]} body */
const targetOf = (body) => body.conversation_id ?? `@${body.to}`

/**
 * The messages that wait, are being sent, or have failed. Messages to one target are sent one after the other, in
 * order.
 */
export class Outbox {
  /**
   * @param {Api} api
   * @param {Timers} timers
   * @param {(message: Message, outgoing: Outgoing) => void} stored called when the server has stored a message
   */
  constructor(api, timers, stored) {
    this.api = api
    this.timers = timers
    this.stored = stored
    /** @type {Signal<ReadonlyArray<Outgoing>>} */
    this.messages = signal([])
    /**
     * The budgets that are nearly used up, by target, or by `*` for the agent's budget of all messages.
     * @type {Signal<ReadonlyMap<string, BudgetLeft>>}
     */
    this.budgets = signal(new Map())
    /** The targets to which messages are being sent. @type {Set<string>} */
    this.pumping = new Set()
    this.attempts = 0
  }

  /**
   * Puts a message into the outbox, which sends it.
   * @param {Omit<Outgoing["body"], "metadata">} body
   * @param {string} text the text that is shown while the message is in the outbox
   * @param {string | null} replyTo
   */
  send(body, text, replyTo) {
    const outgoing = /** @type {Outgoing} */ ({
      client_msg_id: `page-${freshId()}`,
      body: { ...body, metadata: replyTo === null ? {} : { reply_to: replyTo } },
      text,
      at: Date.now(),
      state: "waiting",
      why: null
    })
    this.messages.value = [...this.messages.peek(), outgoing]
    void this.pump(targetOf(outgoing.body))
  }

  /** Sends a failed message again with the same client_msg_id. @param {string} clientMsgId */
  again(clientMsgId) {
    this.mark(clientMsgId, { state: "waiting", why: null })
    const outgoing = this.messages.peek().find((one) => one.client_msg_id === clientMsgId)
    if (outgoing !== undefined) void this.pump(targetOf(outgoing.body))
  }

  /** @param {string} clientMsgId @param {Partial<Outgoing>} change */
  mark(clientMsgId, change) {
    this.messages.value = this.messages.peek().map((one) =>
      one.client_msg_id === clientMsgId ? { ...one, ...change } : one
    )
  }

  /** The budget that is nearest to its end for messages to this target, if any is. @param {string} target */
  budgetOf(target) {
    const ofTarget = this.budgets.value.get(target)
    const ofAgent = this.budgets.value.get("*")
    return ofTarget === undefined || (ofAgent?.left ?? Infinity) < ofTarget.left ? ofAgent : ofTarget
  }

  /**
   * Keeps what the server says about the budgets for a target. Null says that more than a fifth of each is left.
   * @param {string} target
   * @param {BudgetLeft | null} budget
   */
  keepBudget(target, budget) {
    const all = new Map(this.budgets.peek())
    if (budget !== null) all.set(budget.scope === "agent" ? "*" : target, budget)
    else if (![target, "*"].map((key) => all.delete(key)).includes(true)) return
    this.budgets.value = all
  }

  /** Removes a message. @param {string} clientMsgId */
  remove(clientMsgId) {
    if (this.messages.peek().some((one) => one.client_msg_id === clientMsgId)) {
      this.messages.value = this.messages.peek().filter((one) => one.client_msg_id !== clientMsgId)
    }
  }

  /** Sends all waiting messages. */
  flush() {
    for (const target of new Set(this.messages.peek().map(({ body }) => targetOf(body)))) void this.pump(target)
  }

  /** Sends the waiting messages to one target, one after the other, to keep their order. @param {string} target */
  async pump(target) {
    if (this.pumping.has(target)) return
    this.pumping.add(target)
    try {
      for (;;) {
        const next = this.messages.peek().find(({ body, state }) => state === "waiting" && targetOf(body) === target)
        if (next === undefined) return
        this.mark(next.client_msg_id, { state: "sending", why: null })
        try {
          const { budget, isElsewhere, message } = await this.api.sendOnce({
            ...next.body,
            client_msg_id: next.client_msg_id
          })
          this.attempts = 0
          if (budget !== undefined) this.keepBudget(target, budget)
          // Give the message a new id, so that the person can send it again.
          if (isElsewhere)
            this.mark(next.client_msg_id, { client_msg_id: `page-${freshId()}`, state: "failed", why: USED_ELSEWHERE })
          else this.stored(message, next)
        } catch (error) {
          if (!(error instanceof Refused) || !error.passing) {
            this.mark(next.client_msg_id, { state: "failed", why: textOf(error) })
            if (error instanceof Refused && error.code === "BUDGET_EXCEEDED") {
              this.keepBudget(target, { left: 0, limit: error.details.limit, scope: error.details.scope })
              this.timers.later(1000 * (error.retryAfter ?? 0), () => this.keepBudget(target, null))
            }
            continue
          }
          this.mark(next.client_msg_id, { state: "waiting", why: textOf(error) })
          this.timers.later(
            Math.max(1000 * (error.retryAfter ?? 0), backoffMs(this.attempts++)),
            () => void this.pump(target)
          )
          return
        }
      }
    } finally {
      this.pumping.delete(target)
    }
  }
}
