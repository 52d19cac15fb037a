import { Context, Layer } from "effect"

/**
 * The reasons why this node should get no requests right now, written for operators. A node without reasons is ready
 * (wire.md C.13).
 */
export class Readiness extends Context.Service<Readiness, {
  /** Sets the reason of this name; undefined removes the reason. */
  readonly set: (name: string, reason: string | undefined) => void
  /**
   * Registers a check for the life of the process. `reasons` runs the check each time. The check returns a reason, or
   * undefined if all is well.
   */
  readonly check: (look: () => string | undefined) => void
  readonly reasons: () => ReadonlyArray<string>
  /** Whether the reason of this name is set. */
  readonly has: (name: string) => boolean
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
      has: (name) => given.has(name),
      reasons: () => [...given.values(), ...checks.flatMap((look) => look() ?? [])]
    })
  })
}
