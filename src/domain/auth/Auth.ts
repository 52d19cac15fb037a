import type { Agent } from "#domain/agents/Agent"
import { Agents } from "#domain/agents/Agents"
import { sha256 } from "#infrastructure/platform/Ids"
import { Unauthorized, type Unavailable } from "#infrastructure/wire/WireError"
import { Context, Effect, Layer } from "effect"

/** How many hashes of keys are cached. A key and its hash take about 300 bytes. */
const MAX_HASHES = 10_000

const KEY = /^ac_[A-Za-z0-9_-]{43}$/

/** Authenticates API keys, for HTTP and for WebSockets. */
export class Auth extends Context.Service<Auth, {
  /**
   * Returns the account of a live key. The account may be suspended, and the caller decides what a suspended account
   * may do. Fails with the same `Unauthorized` for a key that is malformed, unknown or replaced, and for the key of a
   * deleted account. Fails with `Unavailable` (503) if the key cannot be checked.
   */
  readonly authenticate: (key: string) => Effect.Effect<Agent, Unauthorized | Unavailable>
}>()("parley/auth/Auth") {
  static readonly layer = Layer.effect(
    Auth,
    Effect.map(Agents, (agents) => {
      /**
       * The hashes of keys that were live at their last check, oldest first. Only `Agents` knows whether they are live
       * now. They are cached because computing a hash costs as much as the rest of a check.
       */
      const hashes = new Map<string, Buffer>()
      const refused = Effect.fail(new Unauthorized())

      return Auth.of({
        authenticate: (key) =>
          Effect.suspend(() => {
            const known = hashes.get(key)
            if (known === undefined && !KEY.test(key)) return refused
            const hash = known ?? sha256(key)
            return Effect.flatMap(agents.byKeyHash(hash), (agent) => {
              if (agent === undefined) {
                hashes.delete(key)
                return refused
              }
              if (known === undefined) {
                if (hashes.size >= MAX_HASHES) hashes.delete(hashes.keys().next().value ?? "")
                hashes.set(key, hash)
              }
              return Effect.succeed(agent)
            })
          })
      })
    })
  )
}
