import { Database } from "#infrastructure/database/Sql"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Context, Effect, Layer } from "effect"
import { shownOf } from "./RedirectUri.ts"

/** What operators can refuse: a client, by its id, or a redirect host, in the form that `shownOf` returns. */
export interface RefusedClient {
  readonly kind: "client" | "redirect_host"
  readonly value: string
}

/** Whether a refusal applies to this client with this redirect URI. */
export const concerns = ({ kind, value }: RefusedClient, clientId: string, redirectUri: string): boolean =>
  value === (kind === "client" ? clientId : shownOf(redirectUri))

const FIND = `
SELECT kind, value FROM oauth_refusals
WHERE (kind = 'client' AND value = $1) OR (kind = 'redirect_host' AND value = ANY($2::text[]))`

/**
 * The clients and the hosts of redirects that operators have refused. Every call reads the table, so a refusal takes
 * effect when it is committed.
 */
export class Refusals extends Context.Service<Refusals, {
  /**
   * Returns those of the redirect URIs that operators have not refused. Returns none if the client itself is refused.
   */
  readonly permitted: (
    clientId: string,
    redirectUris: ReadonlyArray<string>
  ) => Effect.Effect<ReadonlyArray<string>, Unavailable>
}>()("parley/oauth/Refusals") {
  static readonly layer = Layer.effect(
    Refusals,
    Effect.map(Database, ({ prepared }) => {
      const find = prepared<RefusedClient>("find_oauth_refusals", FIND)
      return Refusals.of({
        permitted: (clientId, redirectUris) =>
          Effect.map(
            find([clientId, redirectUris.map(shownOf)]),
            (refusals) => redirectUris.filter((uri) => !refusals.some((refused) => concerns(refused, clientId, uri)))
          )
      })
    })
  )
}
