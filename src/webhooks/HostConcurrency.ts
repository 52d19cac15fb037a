import { Effect, Semaphore } from "effect"

/** Limits how many effects run at once, in all and per host: a slow host cannot take every permit. */
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
 * The same for best-effort work, which cannot be cancelled while it waits: once `most` are running or waiting, in all
 * or for the same host, a further effect is dropped.
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
