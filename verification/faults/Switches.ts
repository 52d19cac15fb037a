import { type Operation, Outcome, type Tick } from "./History.ts"

/** Operations that begin a state (`on`) and end it (`off`), each in the order in which they began. */
export interface Switches {
  readonly on: Array<Operation>
  readonly off: Array<Operation>
}

/**
 * The latest operation whose state surely held all the time from `from` to `until`, whatever the order of overlapping
 * operations.
 */
export const certainly = ({ off, on }: Switches, from: Tick, until: Tick): Operation | undefined => {
  let found: Operation | undefined
  for (const one of on) {
    if (one.invoked >= from) break
    if (one.outcome === Outcome.Ok && one.ended < from) found = one
  }
  if (found === undefined) return undefined
  for (const one of off) {
    if (one.invoked >= until) break
    if (one.outcome !== Outcome.Refused && one.ended > found.invoked) return undefined
  }
  return found
}

/** Whether the state may have held at some moment from `from` to `until`. */
export const possibly = ({ off, on }: Switches, from: Tick, until: Tick): boolean => {
  let ended = 0
  for (const one of off) {
    if (one.invoked >= from) break
    if (one.outcome === Outcome.Ok && one.ended < from) ended = one.invoked
  }
  return on.some((one) => one.outcome !== Outcome.Refused && one.invoked <= until && one.ended >= ended)
}
