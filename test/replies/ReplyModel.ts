import { CLAIM_MS } from "#domain/replies/Reply"

export interface State {
  readonly leases: ReadonlyMap<string, number>
  readonly claims: ReadonlyMap<string, { readonly holder: string; readonly endsAt: number }>
}

export const EMPTY: State = { leases: new Map(), claims: new Map() }

export type Call =
  | { readonly kind: "begin"; readonly session: string | null; readonly ms: number }
  | { readonly kind: "end"; readonly session: string | null }
  | { readonly kind: "leases" }
  | { readonly kind: "claim"; readonly id: string; readonly holder: string; readonly defers: boolean }
  | {
    readonly kind: "claimAll"
    readonly ids: ReadonlyArray<string>
    readonly holder: string
    readonly defers: boolean
  }

/** The rules of wire.md L: what a call at this time answers, and what it leaves. */
export const step = (
  { claims, leases }: State,
  call: Call,
  now: number,
  inbox: ReadonlySet<string>
): readonly [State, unknown] => {
  const standing = [...leases].filter(([, endsAt]) => endsAt > now)
  const secondsTo = (endsAt: number) => Math.ceil((endsAt - now) / 1_000)
  const last = standing.length === 0 ? null : Math.max(...standing.map(([, endsAt]) => endsAt))
  switch (call.kind) {
    case "begin":
      return [{ claims, leases: new Map([...leases, [call.session ?? "nameless", now + call.ms]]) }, "begun"]
    case "end": {
      const name = call.session ?? "nameless"
      return [
        { claims, leases: new Map([...leases].filter(([session]) => session !== name)) },
        standing.some(([session]) => session !== name)
      ]
    }
    case "leases":
      return [{ claims, leases }, { sessions: standing.length, expiresIn: last === null ? 0 : secondsTo(last) }]
    case "claim":
    case "claimAll": {
      const ids = call.kind === "claim" ? [call.id] : call.ids
      if (call.kind === "claim" && !inbox.has(call.id)) return [{ claims, leases }, "MessageNotFound"]
      if (call.defers && last !== null)
        return [{ claims, leases }, { claimed: 0, deferred: true, expiresIn: secondsTo(last) }]
      const left = new Map(claims)
      for (const [i, id] of ids.entries()) {
        const held = claims.get(id)
        const taken = held !== undefined && held.holder !== call.holder && held.endsAt > now
        if (taken || !inbox.has(id)) {
          const expiresIn = i > 0 ? CLAIM_MS / 1_000 : taken && inbox.has(id) ? secondsTo(held.endsAt) : 0
          return [{ claims: left, leases }, { claimed: i, deferred: false, expiresIn }]
        }
        left.set(id, { holder: call.holder, endsAt: now + CLAIM_MS })
      }
      return [{ claims: left, leases }, { claimed: ids.length, deferred: false, expiresIn: CLAIM_MS / 1_000 }]
    }
  }
}

/** A call that was made, with the moments of its beginning and its answer. */
export interface Made {
  readonly call: Call
  readonly answer: unknown
  readonly from: number
  readonly to: number
}

/**
 * Whether these calls, made side by side at one time of the clock, could have been made one after the other: each after
 * those that were answered before it began, with the answers that they got.
 */
export const hasOrder = (made: ReadonlyArray<Made>, start: State, now: number, inbox: ReadonlySet<string>): boolean => {
  const orderFrom = (left: ReadonlyArray<Made>, state: State): boolean =>
    left.length === 0 || left.some((one) => {
      if (left.some((other) => other.to < one.from)) return false
      const [next, answer] = step(state, one.call, now, inbox)
      return JSON.stringify(answer) === JSON.stringify(one.answer) &&
        orderFrom(left.filter((other) => other !== one), next)
    })
  return orderFrom(made, start)
}
