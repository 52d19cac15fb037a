import { Context, Effect, Layer } from "effect"
import type { Agent } from "../agents/Agent.ts"
import { Agents } from "../agents/Agents.ts"
import { sha256 } from "../platform/Ids.ts"
import { Unauthorized, type Unavailable } from "../wire/WireError.ts"

const KEY = /^ac_[A-Za-z0-9_-]{43}$/

/** Authenticates API keys, for HTTP and for WebSockets. */
export class Auth extends Context.Service<Auth, {
  /**
   * The account of a live key. It may be suspended: the caller decides what it may do. A key that is malformed,
   * unknown, replaced or of a deleted account always fails with the same `Unauthorized`; if the key cannot be
   * checked, the failure is `Unavailable` (503).
   */
  readonly authenticate: (key: string) => Effect.Effect<Agent, Unauthorized | Unavailable>
}>()("parley/auth/Auth") {
  static readonly layer = Layer.effect(
    Auth,
    Effect.map(Agents, (agents) =>
      Auth.of({
        authenticate: (key) =>
          KEY.test(key)
            ? Effect.flatMap(agents.byKeyHash(sha256(key)), (agent) =>
              agent === undefined ? Effect.fail(new Unauthorized()) : Effect.succeed(agent))
            : Effect.fail(new Unauthorized())
      })))
}
