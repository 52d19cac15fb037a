import type { DirectDependencies } from "#domain/direct/DirectActor"
import type { OutreachFacts } from "#domain/direct/DirectRepo"
import { Effect } from "effect"

/** Facts with which a send is allowed. */
const UNHINDERED: OutreachFacts = {
  replayOf: null,
  opened: true,
  established: false,
  senderStatus: "active",
  recipientDeleted: false,
  recipientSuspended: false,
  inboxMode: "open",
  isContact: true,
  blocked: false,
  undelivered: 0
}

/** The dependencies of a conversation's actor. Those that a test does not give have no effect. */
export const makeDependencies = Effect.fnUntraced(function*(
  { facts, ...given }:
    & Pick<DirectDependencies, "appends" | "newMessageId" | "load">
    & Partial<Pick<DirectDependencies, "publish" | "useAttachment">>
    & { readonly facts: () => Partial<OutreachFacts> },
  own: Partial<DirectDependencies> = {}
) {
  const runFork = Effect.runForkWith(yield* Effect.context<never>())
  const surroundings: DirectDependencies = {
    now: () => 1_000,
    monotonic: () => 1_000,
    facts: () => Effect.sync(() => ({ ...UNHINDERED, ...facts() })),
    reserve: () => Effect.void,
    release: () => Effect.void,
    useAttachment: () => Effect.void,
    original: () => Effect.succeed(undefined),
    publish: () => {},
    backlogSoft: 5_000,
    backlogHard: 10_000,
    fork: (effect) => {
      runFork(effect)
    },
    ...given,
    ...own
  }
  return surroundings
})
