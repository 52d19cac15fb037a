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
const KEY_LATER = "It is dead on every server, and the sockets are closed, within half a minute."

/** The data that an erasure removes. Tables refer to these entries by name (`AgentTable.erasure`). */
export const removed: ReadonlyArray<Fate> = [
  { what: KEY, words: "It stops working at once, and the sockets are closed." },
  {
    what: "profile",
    words:
      "Names, description, skills, picture, presence and when it was last seen; the picture's bytes within two hours."
  },
  {
    what: "address",
    words:
      "The e-mail address and codes for it, in the audit log too. A hash with this server's secret stays, so that the limit of accounts for an address still holds."
  },
  { what: "contacts", words: "Its contacts and mutes, and those that others have of it, with notes." },
  { what: "connections", words: "The hosts that a person has let act for it." },
  {
    what: "webhooks",
    words:
      "URLs, secrets and waiting deliveries, within minutes; the A2A tasks that they were for, within an hour or two."
  },
  {
    what: "memberships",
    words: "It has left all groups, and invites are withdrawn; refusals of invites are removed within a day."
  },
  { what: "files", words: "Files that no message uses, once their upload URLs have expired." },
  {
    what: "traces",
    words:
      "Its marks of hidden conversations and messages, also of single messages in groups, answers to its requests, its names and descriptions in answers to other agents' requests, claims to reply, counts of its new conversations, limits of its own."
  },
  { what: "notes about the erasure itself", words: "When all other steps are done." }
]

/** The data that stay, and why. Tables also refer to these entries by name. */
export const remains: ReadonlyArray<Fate> = [
  { what: "handle", words: "No other agent may ever have it, because messages keep their sender." },
  {
    what: "messages and their files",
    words:
      "They are the history of the agents that they were sent to, until they are older than RETENTION_MESSAGES_DAYS."
  },
  {
    what: "states of messages to it",
    words: "They show senders that a message was delivered or read."
  },
  { what: "when it was in which group", words: "It is the groups' history." },
  { what: "blocks and reports, by it and of it", words: "They protect others, and continue to count." },
  { what: "audit log", words: "It says what operators did, including this erasure, without the e-mail address." },
  {
    what: "backups, exports, logs, and mails in the outbox",
    words: "They are files outside of the database. After a restoration of an older backup, erase again."
  }
]

/** Where removed bytes remain for a while although no row contains them. */
const files = {
  pglite: {
    what: "old bytes in the database's files and write-ahead log",
    why:
      "Within minutes of the last step, when few statements run, the server rewrites the tables and clears the write-ahead log. It does so once more after a day. " +
      "Tables that are too large for this wait for `npm run admin -- compact`; the server's log names them. Tables for which the disk has too little free space wait until there is enough. Disks keep the bytes of removed files until other data overwrites them."
  },
  pg: {
    what: "old bytes in PostgreSQL's files, write-ahead log, archives and replicas",
    why:
      "PostgreSQL overwrites them at a time that it chooses. VACUUM FULL of a table rewrites its files at once (docs/operations.md)."
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
