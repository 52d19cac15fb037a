import { Context, Layer } from "effect"

/** Why this node should get no work right now; empty when it is ready (wire.md C.13). */
export class Readiness extends Context.Service<Readiness, {
  /** Gives a reason, or takes back the one that was given under this name. */
  readonly set: (name: string, reason: string | undefined) => void
  readonly reasons: () => ReadonlyArray<string>
}>()("parley/service/Readiness") {
  static readonly layer = Layer.sync(Readiness, () => {
    const reasons = new Map<string, string>()
    return Readiness.of({
      set: (name, reason) => {
        if (reason === undefined) reasons.delete(name)
        else reasons.set(name, reason)
      },
      reasons: () => [...reasons.values()]
    })
  })
}
