import { Ids } from "#infrastructure/platform/Ids"
import { Context, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import type { OwnedTable } from "./Tables.ts"

/** The table in which the keys are stored. */
export const secretsTables: ReadonlyArray<OwnedTable> = [
  { table: "secrets", retention: { kept: "they never change" }, notExported: "keys of the server, none of an agent" }
]

/**
 * Secret keys that all nodes of one database share. The first node that starts generates them and stores them in the
 * database. They never change.
 */
export class Secrets extends Context.Service<Secrets, {
  /** The key from which ids of direct conversations are derived. */
  readonly conversationIds: Buffer
  /** The key with which delivery ids are masked. */
  readonly deliveryIds: Buffer
  /** The key that signs the URLs of files that the server serves itself. */
  readonly signedUrls: Buffer
  /** The key from which the tokens of connections are derived. */
  readonly tokens: Buffer
  /**
   * The keys with which OAuth client ids are made. The first key is the current key. Ids that were made with former
   * keys stay valid.
   */
  readonly clients: readonly [Buffer, ...Array<Buffer>]
}>()("parley/database/Secrets") {
  static readonly layer = Layer.effect(
    Secrets,
    Effect.gen(function*() {
      const sql = yield* SqlClient.SqlClient
      const ids = yield* Ids
      const secret = Effect.fnUntraced(function*(name: string) {
        yield* sql`INSERT INTO secrets (name, value) VALUES (${name}, ${ids.bytes(32)}) ON CONFLICT (name) DO NOTHING`
        const rows = yield* sql<{ readonly value: Buffer }>`SELECT value FROM secrets WHERE name = ${name}`
        return rows[0]!.value
      })
      return Secrets.of({
        conversationIds: yield* secret("conversation_ids"),
        deliveryIds: yield* secret("delivery_ids"),
        signedUrls: yield* secret("signed_urls"),
        tokens: yield* secret("tokens"),
        clients: [yield* secret("oauth_clients")]
      })
    })
  )
}
