import { Accounts } from "#domain/agents/Accounts"
import { Database } from "#infrastructure/database/Sql"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Context, Effect, Layer } from "effect"
import { AuditLog } from "./AuditLog.ts"

interface Fate {
  readonly what: string
  /** What happens to these data, or why they stay. */
  readonly words: string
}

const KEY = "key"
/** The words for a key that was ended while no server could be notified. Each server finds out by polling. */
const KEY_LATER = "Within half a minute, the key is invalid on every server, and the sockets are closed."

/** The data that an erasure removes. Tables refer to these entries by name (`AgentTable.erasure`). */
export const removed: ReadonlyArray<Fate> = [
  { what: KEY, words: "The key stops working at once, and the sockets are closed." },
  {
    what: "profile",
    words:
      "Names, description, skills, picture, presence and the time when the agent was last seen; the picture's bytes within two hours."
  },
  {
    what: "address",
    words:
      "The e-mail address, and codes and invitations for it, in the audit log too. A hash with this server's secret stays, so that the limit on accounts for an address still applies."
  },
  { what: "contacts", words: "The agent's contacts and mutes, and those of other agents that concern it, with notes." },
  { what: "connections", words: "The programs that a person has permitted to act for the agent." },
  {
    what: "webhooks",
    words: "URLs, secrets and waiting deliveries, within minutes; the A2A tasks to which they belong, within two hours."
  },
  {
    what: "memberships",
    words: "The agent has left all groups, and its invites are withdrawn; refusals of invites are removed within a day."
  },
  { what: "files", words: "Files that no message uses, once their upload URLs have expired." },
  {
    what: "traces",
    words:
      "Marks of hidden conversations and messages, single messages in groups included; its reactions to messages; the outcomes of messages that it reported, with its reasons; stored responses to its requests; its names and descriptions in stored responses to other agents; claims to reply; counts of its new conversations; limits that were set for it."
  },
  { what: "notes about the erasure itself", words: "They are removed when all other steps are done." }
]

/** The data that stay, and why. Tables also refer to these entries by name. */
export const remains: ReadonlyArray<Fate> = [
  { what: "handle", words: "No other agent may ever have it, because messages keep their sender." },
  {
    what: "messages and their files",
    words: "They belong to the history of their recipients, until they are older than RETENTION_MESSAGES_DAYS."
  },
  {
    what: "states of messages to it",
    words: "They show senders that a message was delivered or read."
  },
  { what: "when it was in which group", words: "This belongs to the history of the groups." },
  { what: "blocks and reports, by it and of it", words: "They protect other agents, and continue to count." },
  { what: "audit log", words: "It records what operators did, including this erasure, without the e-mail address." },
  {
    what: "backups, exports, logs, and mails in the outbox",
    words: "They are files outside the database. After you restore an older backup, erase the agent again."
  }
]

/** Where removed bytes remain for a while although no row contains them. */
const files = {
  pglite: {
    what: "old bytes in the database's files and write-ahead log",
    why:
      "Within minutes of the last step, when few statements run, the server rewrites the tables and clears the write-ahead log. It does so once more after a day. " +
      "The server's log names tables that are too large for this: run `npm run admin -- compact`. If the disk has too little free space for a table, the server waits until there is enough. Disks keep the bytes of removed files until other data overwrites them."
  },
  pg: {
    what: "old bytes in PostgreSQL's files, write-ahead log, archives and replicas",
    why:
      "PostgreSQL decides when it overwrites them. VACUUM FULL of a table rewrites its files at once (docs/operations.md)."
  }
}

export interface Erased {
  readonly message: string
  readonly removed: ReadonlyArray<{ readonly what: string; readonly words: string }>
  readonly remains: ReadonlyArray<{ readonly what: string; readonly why: string }>
}

/**
 * Erases an agent (wire.md O.1). This deletes the account, and also removes data that a deletion leaves. One commit
 * ends the account and writes the audit row. The job of deletions runs the other steps. An account that is already
 * deleted can also be erased. An erasure may be repeated.
 */
export class Erasure extends Context.Service<Erasure, {
  readonly erase: (given: {
    readonly agentId: string
    readonly handle: string
    readonly operator: string
    readonly reason: string | null
  }) => Effect.Effect<Erased, Unavailable>
}>()("parley/operator/Erasure") {
  static readonly layer = Layer.effect(
    Erasure,
    Effect.gen(function*() {
      const accounts = yield* Accounts
      const audit = yield* AuditLog
      const { driver, query } = yield* Database
      return Erasure.of({
        erase: Effect.fn("Erasure.erase")(function*({ agentId, handle, operator, reason }) {
          yield* accounts.erase(agentId, audit.note({ operator, action: "erase", handle, detail: reason }))
          const [row] = yield* query<
            { readonly done: boolean }
          >`SELECT position('@' IN email) = 0 AS done FROM agents WHERE id = ${agentId}`
          return {
            message: row?.done === true
              ? `@${handle} is erased. Data written meanwhile is removed within two minutes.`
              : `@${handle} is deleted, and a running server removes the rest within two minutes.`,
            removed: removed.map(({ what, words }) => ({
              what,
              words: what === KEY && row?.done !== true ? KEY_LATER : words
            })),
            remains: [...remains.map(({ what, words }) => ({ what, why: words })), files[driver]]
          }
        })
      })
    })
  ).pipe(Layer.provide(AuditLog.layer))
}
