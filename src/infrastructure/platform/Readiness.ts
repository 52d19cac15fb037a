import { Context, Layer } from "effect"

/**
 * The reasons why this node should receive no requests at present, written for operators. A node without reasons is
 * ready (wire.md C.13).
 */
export class Readiness extends Context.Service<Readiness, {
  /** Sets the reason with this name. Undefined removes it. */
  readonly set: (name: string, reason: string | undefined) => void
  /**
   * Registers a check for the lifetime of the process. Every call of `reasons` runs the check. The check returns a
   * reason, or undefined if there is no problem.
   */
  readonly check: (look: () => string | undefined) => void
  readonly reasons: () => ReadonlyArray<string>
  /** Whether a reason with this name is set. */
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
