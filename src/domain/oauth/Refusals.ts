import { Database } from "#infrastructure/database/Sql"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Context, Effect, Layer } from "effect"
import { shownOf } from "./RedirectUri.ts"

/** A client, by its id, or the host of redirects, as `shownOf` writes it, that operators can refuse. */
export interface RefusedClient {
  readonly kind: "client" | "redirect_host"
  readonly value: string
}

/** Whether a refusal concerns a client that is redirected to this URI. */
export const concerns = ({ kind, value }: RefusedClient, clientId: string, redirectUri: string): boolean =>
  value === (kind === "client" ? clientId : shownOf(redirectUri))

const FIND = `
SELECT kind, value FROM oauth_refusals
WHERE (kind = 'client' AND value = $1) OR (kind = 'redirect_host' AND value = ANY($2::text[]))`

/**
 * The clients and the hosts of redirects that operators have refused. Every call reads the table, so a refusal holds
 * from its commit.
 */
export class Refusals extends Context.Service<Refusals, {
  /**
   * Those of the redirect URIs that operators have not refused to this client. There are none if the client itself is
   * refused.
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
