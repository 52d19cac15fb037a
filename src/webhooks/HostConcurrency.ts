import { Effect, Semaphore } from "effect"

/** Lets so many at once through, and of those so many for the same host: a slow host does not take all places. */
export const makeHostConcurrency = (inAll: number, perHost: number) => {
  const all = Semaphore.makeUnsafe(inAll)
  const hosts = new Map<string, { readonly semaphore: Semaphore.Semaphore; users: number }>()
  return (host: string) => <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
    Effect.suspend(() => {
      const known = hosts.get(host) ?? { semaphore: Semaphore.makeUnsafe(perHost), users: 0 }
      hosts.set(host, known)
      known.users++
      return known.semaphore.withPermit(all.withPermit(effect)).pipe(
        Effect.ensuring(Effect.sync(() => {
          if (--known.users === 0) hosts.delete(host)
        }))
      )
    })
}

/**
 * The same for what may be left undone, which nobody takes back while it waits: beyond so many at
 * work or waiting, in all or for the same host, one more is not begun.
 */
export const makeSpareConcurrency = (
  inAll: number,
  perHost: number,
  most: { readonly inAll: number; readonly perHost: number }
) => {
  const permits = makeHostConcurrency(inAll, perHost)
  const hosts = new Map<string, number>()
  let all = 0
  return (host: string) => <E, R>(effect: Effect.Effect<void, E, R>): Effect.Effect<void, E, R> =>
    Effect.suspend(() => {
      const here = hosts.get(host) ?? 0
      if (all >= most.inAll || here >= most.perHost) return Effect.void
      all++
      hosts.set(host, here + 1)
      return Effect.ensuring(permits(host)(effect), Effect.sync(() => {
        all--
        const left = (hosts.get(host) ?? 1) - 1
        if (left === 0) hosts.delete(host)
        else hosts.set(host, left)
      }))
    })
}
