import { Effect, Semaphore } from "effect"

/** Lets so many at once through, and of those so many for the same host: a slow host does not take all places. */
export const makePermits = (inAll: number, perHost: number) => {
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
