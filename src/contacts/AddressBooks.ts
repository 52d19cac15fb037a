import { Context, Effect, Layer } from "effect"
import { unavailableOnSqlError } from "../platform/UnavailableOnSqlError.ts"
import type { Unavailable } from "../wire/WireError.ts"
import { ContactsRepo } from "./ContactsRepo.ts"

/** Removed with one statement. */
const ROWS = 500

/** Everybody's contact lists, for the room that ends accounts. */
export class AddressBooks extends Context.Service<AddressBooks, {
  /** Takes an agent out of every contact list and drops its own (wire.md G.12); idempotent. Blocks and reports stay: they count. */
  readonly removeAgent: (agentId: string) => Effect.Effect<void, Unavailable>
}>()("parley/contacts/AddressBooks") {
  static readonly layer = Layer.effect(
    AddressBooks,
    Effect.map(ContactsRepo, (repo) =>
      AddressBooks.of({
        removeAgent: (id) =>
          Effect.asVoid(unavailableOnSqlError(Effect.repeat(repo.removeAgent(id, ROWS), { while: (removed) => removed > 0 })))
      }))
  )
}
