import { Context, Layer } from "effect"

/** Why this node should get no work right now, in words an operator can act on; empty when it is ready (wire.md C.13). */
export class Readiness extends Context.Service<Readiness, {
  /** Gives a reason, or takes back the one that was given under this name. */
  readonly set: (name: string, reason: string | undefined) => void
  /** Is asked for a reason whenever somebody wants to know, for as long as the process lives. */
  readonly check: (look: () => string | undefined) => void
  readonly reasons: () => ReadonlyArray<string>
}>()("parley/platform/Readiness") {
  static readonly layer = Layer.sync(Readiness, () => {
    const given = new Map<string, string>()
    const checks: Array<() => string | undefined> = []
    return Readiness.of({
      set: (name, reason) => {
        if (reason === undefined) given.delete(name)
        else given.set(name, reason)
      },
      check: (look) => {
        checks.push(look)
      },
      reasons: () => [...given.values(), ...checks.flatMap((look) => look() ?? [])]
    })
  })
}
