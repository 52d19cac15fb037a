import { DirectActor } from "#domain/direct/DirectActor"
import type { DirectAppend, DirectAppended } from "#domain/direct/DirectConversation"
import { GroupActor, type GroupDependencies } from "#domain/groups/GroupActor"
import type { GroupAppended } from "#domain/groups/GroupAppend"
import { GroupNotFound } from "#domain/memberships/GroupDeletion"
import type { Published } from "#domain/messages/Published"
import type { Settled } from "#infrastructure/database/CommitQueue"
import { forTrace, startTracing, type TraceContext } from "#infrastructure/platform/Tracing"
import { Unavailable } from "#infrastructure/wire/WireError"
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Exit, Fiber, Logger } from "effect"
import { makeDependencies } from "../support/ActorDependencies.ts"
import { draft } from "../support/Modules.ts"

const a = { id: "agt_a", handle: "aaa", displayName: "aaa" }
const b = { id: "agt_b", handle: "bbb" }

/** What a test decides about the services around a conversation. */
interface Surroundings {
  /** Runs before each read of the state. */
  readonly beforeLoad: Effect.Effect<void, Unavailable>
  readonly useAttachment: (asks: (isAsked: boolean) => void) => Effect.Effect<void>
  readonly monotonic: () => number
  /** Whether the actor has not written yet. The first write of a direct conversation is a barrier. */
  readonly isNew: boolean
}

const SURROUNDINGS: Surroundings = {
  beforeLoad: Effect.void,
  useAttachment: () => Effect.void,
  monotonic: () => 1_000,
  isNew: false
}

type Ending = "Stored" | "Fenced" | "Replayed" | "SenderGone" | Extract<Settled<never>, { readonly _tag: "Failed" }>

/** A write that waits for the test. */
interface Commit {
  readonly key: string
  /** The version of the conversation that the write was decided on. */
  readonly version: number
  readonly age: number | undefined
  readonly trace: TraceContext | undefined
  readonly settle: (ending: Ending) => void
}

type Result<A = unknown> = Exit.Exit<A, { readonly _tag: string }>

/** A conversation of either kind. */
interface World {
  readonly actor: { readonly idle: boolean; readonly timeOutCallers: (before: number) => void }
  readonly send: (
    key: string,
    attachmentId?: string
  ) => Effect.Effect<Result<{ readonly created: boolean; readonly body: string } | null>>
  /** A change that is committed once `statement` succeeds. It raises the version of the conversation. */
  readonly change: (statement: Effect.Effect<void, Unavailable>) => Effect.Effect<Result>
  readonly commits: Array<Commit>
  readonly loads: () => number
  /** The messages that were published, without system messages. */
  readonly published: Array<Published>
}

interface Kind {
  readonly maxAttempts: number
  readonly make: (own: Surroundings) => Effect.Effect<World>
}

const start = <A>(effect: Effect.Effect<A>) => Effect.forkChild(effect, { startImmediately: true })

/** Turns the ending of a write into the result that its statement has. */
const settling = <Outcome>(
  settle: (settled: Settled<Outcome>) => void,
  of: (ending: Exclude<Ending, object>) => Outcome
) =>
(ending: Ending): void => settle(typeof ending === "object" ? ending : { _tag: "Done", value: of(ending) })

const direct: Kind = {
  maxAttempts: 5,
  make: Effect.fnUntraced(function*({ beforeLoad, isNew, monotonic, useAttachment }) {
    const commits: Array<Commit> = []
    const published: Array<Published> = []
    const row = { epoch: 1, version: 0, seq: 0 }
    let loads = 0
    const outcome = (append: DirectAppend, ending: Exclude<Ending, object>): DirectAppended => {
      if (ending !== "Stored") return { _tag: ending }
      row.epoch = append.nextEpoch
      const seq = ++row.seq
      return { _tag: "Stored", seq, inboxNo: seq, undelivered: 1, senderLastInboxNo: 0, senderNextInboxNo: null }
    }
    const actor = DirectActor.make(
      yield* makeDependencies({
        appends: {
          submit: (append, settle, age, trace) =>
            commits.push({
              key: append.draft.clientMsgId,
              version: append.version,
              age,
              trace,
              settle: settling(settle, (ending) => outcome(append, ending))
            })
        },
        newMessageId: () => `msg_${row.seq + 1}`,
        load: () =>
          Effect.suspend(() => {
            loads++
            return Effect.map(beforeLoad, () => ({
              epoch: row.epoch,
              version: row.version,
              state: { initiatorId: a.id, createdAt: 0, established: true, blocked: false }
            }))
          }),
        facts: () => ({}),
        publish: (stored) => published.push(stored),
        useAttachment: (_sender, _recipient, _id, asks) => useAttachment(asks)
      }, {
        monotonic,
        original: () => Effect.succeed({ created: false, body: "the original", backlog: null })
      })
    )("conv_1")
    const send = (key: string, attachmentId?: string) =>
      Effect.exit(actor.send({ sender: a, recipient: b, draft: { ...draft(key), attachmentId } }))
    if (!isNew) {
      const first = yield* start(send("first"))
      commits[0]!.settle("Stored")
      yield* Fiber.join(first)
      commits.length = published.length = loads = 0
    }
    return {
      actor,
      send,
      change: (statement) =>
        Effect.exit(actor.unblock(Effect.tap(statement, () => Effect.sync(() => void row.version++)))),
      commits,
      loads: () => loads,
      published
    }
  })
}

const group = {
  maxAttempts: 50,
  make: Effect.fnUntraced(function*({ beforeLoad, isNew, monotonic, useAttachment }: Surroundings) {
    const commits: Array<Commit> = []
    const published: Array<Published> = []
    const row = { version: 0, seq: 0, members: [a] }
    let loads = 0
    const runFork = Effect.runForkWith(yield* Effect.context<never>())
    const outcome = (ending: Exclude<Ending, object>): GroupAppended =>
      ending === "Stored"
        ? { _tag: "Stored", seq: ++row.seq, envelopes: [], senderLastInboxNo: 0, senderNextInboxNo: null }
        : { _tag: ending }
    const needed: Partial<GroupDependencies> = {
      appends: {
        submit: (append, settle, age, trace) =>
          void commits.push({
            key: append.draft.clientMsgId,
            version: append.version,
            age,
            trace,
            settle: settling(settle, outcome)
          })
      },
      now: () => 1_000,
      monotonic,
      newMessageId: () => `msg_${row.seq + 1}`,
      load: () =>
        Effect.suspend(() => {
          loads++
          return Effect.map(beforeLoad, () => ({
            id: "grp_1",
            version: row.version,
            profile: { name: "Group", description: null, avatarUrl: null },
            creatorId: a.id,
            createdAt: 0,
            lastMessageAt: null,
            deleted: null,
            members: row.members.map(({ handle, id }) => ({
              agentId: id,
              handle,
              role: "admin",
              joinedAt: 0,
              founder: id === a.id,
              suspended: false
            }))
          }))
        }),
      outside: () => Effect.succeed(new GroupNotFound()),
      status: () => Effect.succeed("suspended"),
      useAttachment: (_sender, _group, _id, asks) => useAttachment(asks),
      displayNames: () => Effect.succeed(new Map()),
      earlier: () => Effect.succeed(undefined),
      inviteById: (id) => Effect.succeed({ id, groupId: "grp_1", inviterId: a.id, inviteeId: b.id, createdAt: 0 }),
      maxMembers: 1,
      publish: (stored) => {
        if (stored.message.type !== "system") published.push(stored)
      },
      fork: (effect) => void runFork(effect)
    }
    let statement: Effect.Effect<void, Unavailable> = Effect.void
    const actor = GroupActor.make({
      ...needed,
      change: () =>
        Effect.map(statement, () => {
          row.version++
          return { base: row.seq++, envelopes: [[]], reached: new Map() }
        })
    } as GroupDependencies)("grp_1")
    const send = (key: string, attachmentId?: string, sender = a) =>
      Effect.exit(actor.send({ sender, draft: { ...draft(key), attachmentId } }))
    if (!isNew) {
      const first = yield* start(send("first"))
      commits[0]!.settle("Stored")
      yield* Fiber.join(first)
      commits.length = published.length = loads = 0
    }
    let names = 0
    return {
      actor,
      send,
      /** Makes an agent a member by another owner, which this one does not notice. */
      join: (agent: typeof a) => {
        row.version++
        row.members = [...row.members, agent]
      },
      change: (given: Effect.Effect<void, Unavailable>) => {
        statement = given
        return Effect.exit(actor.update({ actorId: a.id, messageIds: [], name: `Group ${++names}` }))
      },
      commits,
      loads: () => loads,
      published
    }
  })
}

const FAILED = { _tag: "Failed", exit: Exit.fail(new Unavailable()) } as const
const defect = new TypeError("a defect")
const BROKEN = { _tag: "Failed", exit: Exit.die(defect) } as const

const tagOf = (exit: Result): string =>
  Exit.isSuccess(exit)
    ? "done"
    : exit.cause.reasons.map((reason) => reason._tag === "Fail" ? reason.error._tag : reason._tag).join()
const defectsOf = (exit: Result) =>
  Exit.isSuccess(exit) ? [] : exit.cause.reasons.flatMap((reason) => reason._tag === "Die" ? [reason.defect] : [])
const keysOf = (commits: ReadonlyArray<Commit>) => commits.map(({ key }) => key)
const keysOfPublished = ({ published }: World) => published.map(({ message }) => message.clientMsgId)

/** Lets the fibers that can go on do so. */
const settled = Effect.repeat(Effect.yieldNow, { times: 20 })

const kinds: Readonly<Record<string, Kind>> = { direct, group }
for (const [name, { make, maxAttempts }] of Object.entries(kinds)) {
  const makeWorld = (own: Partial<Surroundings> = {}) => make({ ...SURROUNDINGS, ...own })

  describe(`sends of a ${name} conversation`, () => {
    it.effect("are written in order of arrival, without a wait for each other's commits", () =>
      Effect.gen(function*() {
        const { commits, loads, send } = yield* makeWorld()
        for (const key of ["m1", "m2", "m3"]) yield* start(send(key))
        assert.deepStrictEqual(keysOf(commits), ["m1", "m2", "m3"])
        assert.strictEqual(loads(), 0)
      }))

    it.effect("with the same key in flight share one result, and one of them is the creation", () =>
      Effect.gen(function*() {
        const { commits, published, send } = yield* makeWorld()
        const fibers = [yield* start(send("m1")), yield* start(send("m1")), yield* start(send("m1"))]
        assert.deepStrictEqual(keysOf(commits), ["m1"])
        commits[0]!.settle("Stored")
        const exits = yield* Fiber.joinAll(fibers)
        assert.deepStrictEqual(exits.map((exit) => Exit.isSuccess(exit) && exit.value?.created), [true, false, false])
        assert.strictEqual(new Set(exits.map((exit) => Exit.isSuccess(exit) && exit.value?.body)).size, 1)
        assert.strictEqual(published.length, 1)
      }))

    it.effect("are published after the commit and before the answer", () =>
      Effect.gen(function*() {
        const { commits, published, send } = yield* makeWorld()
        const sending = yield* start(send("m1"))
        yield* settled
        assert.strictEqual(published.length, 0)
        assert.isUndefined(sending.pollUnsafe())
        commits[0]!.settle("Stored")
        assert.strictEqual(published.length, 1)
        assert.strictEqual(tagOf(yield* Fiber.join(sending)), "done")
      }))

    it.effect("carry their trace and their age into the commit", () =>
      Effect.gen(function*() {
        const spans: Array<string> = []
        const stop = startTracing({
          record: (span) => spans.push(span.name),
          sampler: { followsParent: true, ratio: 1 }
        })
        yield* Effect.gen(function*() {
          let time = 1_000
          const read = Deferred.makeUnsafe<void>()
          const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
          const { commits, published, send } = yield* makeWorld({
            isNew: true,
            monotonic: () => time,
            beforeLoad: Deferred.await(read)
          })
          const sending = yield* start(forTrace(trace, send("m1")))
          time = 1_250
          yield* Deferred.succeed(read, undefined)
          yield* settled
          assert.deepStrictEqual(commits.map(({ age, trace }) => [age, trace]), [[250, trace]])
          assert.deepStrictEqual(spans, ["decide"])
          commits[0]!.settle("Stored")
          yield* Fiber.join(sending)
          assert.deepStrictEqual(published.map((stored) => stored.trace), [trace])
        }).pipe(Effect.ensuring(Effect.sync(stop)))
      }))

    it.effect(`that are fenced are decided again on rows that were read since, ${maxAttempts} times at most`, () =>
      Effect.gen(function*() {
        const { commits, loads, send } = yield* makeWorld()
        const sending = yield* start(send("m1"))
        for (let i = 0; i < maxAttempts; i++) {
          assert.deepStrictEqual([commits.length, loads()], [i + 1, i])
          commits[i]!.settle("Fenced")
          yield* settled
        }
        assert.strictEqual(tagOf(yield* Fiber.join(sending)), "Unavailable")
        assert.strictEqual(commits.length, maxAttempts)
      }).pipe(Effect.provide(Logger.layer([]))))

    it.effect("whose commit failed are answered with Unavailable, and the next send reads what became of them", () =>
      Effect.gen(function*() {
        const { commits, loads, send } = yield* makeWorld()
        const failing = yield* start(send("m1"))
        commits[0]!.settle(FAILED)
        assert.strictEqual(tagOf(yield* Fiber.join(failing)), "Unavailable")
        const next = yield* start(send("m1"))
        assert.strictEqual(loads(), 1)
        commits[1]!.settle("Stored")
        assert.strictEqual(tagOf(yield* Fiber.join(next)), "done")
      }))

    it.effect("of a sender that was suspended meanwhile are refused", () =>
      Effect.gen(function*() {
        const { actor, commits, send } = yield* makeWorld()
        const sending = yield* start(send("m1"))
        commits[0]!.settle("SenderGone")
        assert.strictEqual(tagOf(yield* Fiber.join(sending)), "AgentSuspended")
        assert.isTrue(actor.idle)
      }))

    it.effect("whose state cannot be read fail, and so do the commands behind them", () =>
      Effect.gen(function*() {
        const read = Deferred.makeUnsafe<void, Unavailable>()
        const { actor, change, commits, send } = yield* makeWorld({ isNew: true, beforeLoad: Deferred.await(read) })
        const fibers = [yield* start(send("m1")), yield* start(change(Effect.void)), yield* start(send("m2"))]
        yield* Deferred.fail(read, new Unavailable())
        for (const fiber of fibers) assert.strictEqual(tagOf(yield* Fiber.join(fiber)), "Unavailable")
        assert.strictEqual(commits.length, 0)
        assert.isTrue(actor.idle)
      }))
  })

  describe(`callers of a ${name} conversation`, () => {
    it.effect("time out; a send that is being committed is published all the same", () =>
      Effect.gen(function*() {
        let time = 1_000
        const world = yield* makeWorld({ monotonic: () => time })
        const { actor, commits, send } = world
        const first = yield* start(send("m1"))
        time = 3_000
        const repeated = yield* start(send("m1"))
        actor.timeOutCallers(3_000)
        assert.isUndefined(first.pollUnsafe())
        actor.timeOutCallers(3_001)
        for (const fiber of [first, repeated]) assert.strictEqual(tagOf(yield* Fiber.join(fiber)), "Unavailable")
        assert.isFalse(actor.idle)
        commits[0]!.settle("Stored")
        assert.deepStrictEqual(keysOfPublished(world), ["m1"])
        assert.isTrue(actor.idle)
      }))

    it.effect("that time out in the queue have their sends dropped, unless another caller asks for them in time", () =>
      Effect.gen(function*() {
        let time = 1_000
        const statement = Deferred.makeUnsafe<void>()
        const { actor, change, commits, send } = yield* makeWorld({ monotonic: () => time })
        const changing = yield* start(change(Deferred.await(statement)))
        const early = [yield* start(send("m1")), yield* start(send("m2"))]
        time = 9_000
        const late = yield* start(send("m3"))
        actor.timeOutCallers(4_000)
        for (const fiber of early) assert.strictEqual(tagOf(yield* Fiber.join(fiber)), "Unavailable")
        const again = yield* start(send("m2"))
        yield* Deferred.succeed(statement, undefined)
        yield* Fiber.join(changing)
        yield* settled
        for (const key of ["m2", "m3"]) {
          commits.find((commit) => commit.key === key)?.settle("Stored")
          yield* settled
        }
        assert.deepStrictEqual(keysOf(commits), ["m2", "m3"])
        for (const fiber of [again, late]) assert.strictEqual(tagOf(yield* Fiber.join(fiber)), "done")
        assert.isTrue(actor.idle)
      }))

    it.effect("that time out while the state is read do not take the others with them", () =>
      Effect.gen(function*() {
        let time = 1_000
        const read = Deferred.makeUnsafe<void>()
        const { actor, commits, loads, send } = yield* makeWorld({
          isNew: true,
          monotonic: () => time,
          beforeLoad: Deferred.await(read)
        })
        const early = [yield* start(send("m1")), yield* start(send("m2"))]
        time = 9_000
        const late = yield* start(send("m3"))
        actor.timeOutCallers(4_000)
        for (const fiber of early) assert.strictEqual(tagOf(yield* Fiber.join(fiber)), "Unavailable")
        yield* Deferred.succeed(read, undefined)
        yield* settled
        assert.deepStrictEqual([loads(), keysOf(commits)], [1, ["m3"]])
        commits[0]!.settle("Stored")
        assert.strictEqual(tagOf(yield* Fiber.join(late)), "done")
        assert.isTrue(actor.idle)
      }))

    it.effect("that disconnect leave their sends: one that is not decided yet is dropped", () =>
      Effect.gen(function*() {
        const checked = Deferred.makeUnsafe<void>()
        const { actor, commits, send } = yield* makeWorld({ useAttachment: () => Deferred.await(checked) })
        const alone = yield* start(send("m1", "att_1"))
        const shared = yield* start(send("m2", "att_1"))
        const other = yield* start(send("m2", "att_1"))
        yield* Fiber.interrupt(alone)
        yield* Fiber.interrupt(shared)
        assert.isFalse(actor.idle)
        yield* Deferred.succeed(checked, undefined)
        yield* settled
        assert.deepStrictEqual(keysOf(commits), ["m2"])
        commits[0]!.settle("Stored")
        assert.strictEqual(tagOf(yield* Fiber.join(other)), "done")
        assert.isTrue(actor.idle)
      }))

    it.effect("do not time out while the file store is asked", () =>
      Effect.gen(function*() {
        let time = 1_000
        const checked = Deferred.makeUnsafe<void>()
        const { actor, commits, send } = yield* makeWorld({
          monotonic: () => time,
          useAttachment: (asks) => {
            asks(true)
            return Effect.ensuring(Deferred.await(checked), Effect.sync(() => asks(false)))
          }
        })
        const sending = yield* start(send("m1", "att_1"))
        const plain = yield* start(send("m2"))
        assert.deepStrictEqual(keysOf(commits), ["m2"])
        time = 20_000
        actor.timeOutCallers(15_000)
        assert.strictEqual(tagOf(yield* Fiber.join(plain)), "Unavailable")
        yield* Deferred.succeed(checked, undefined)
        yield* settled
        actor.timeOutCallers(15_000)
        assert.deepStrictEqual(keysOf(commits), ["m2", "m1"])
        commits[1]!.settle("Stored")
        assert.strictEqual(tagOf(yield* Fiber.join(sending)), "done")
      }))
  })

  describe(`a change of a ${name} conversation`, () => {
    it.effect("runs between the sends before it and the sends behind it", () =>
      Effect.gen(function*() {
        const world = yield* makeWorld()
        const { change, commits, send } = world
        const statements = [Deferred.makeUnsafe<void>(), Deferred.makeUnsafe<void>()] as const
        let began = 0
        const waiting = (i: 0 | 1) =>
          Effect.suspend(() => {
            began++
            return Deferred.await(statements[i])
          })
        const before = yield* start(send("before"))
        const first = yield* start(change(waiting(0)))
        assert.strictEqual(began, 1, "a commit in flight does not delay it")
        yield* start(send("between"))
        const second = yield* start(change(waiting(1)))
        yield* start(send("behind"))
        assert.deepStrictEqual(keysOf(commits), ["before"])
        yield* Deferred.succeed(statements[0], undefined)
        yield* Fiber.join(first)
        yield* settled
        assert.deepStrictEqual(commits.map(({ key, version }) => [key, version]), [["before", 0], ["between", 1]])
        commits[1]!.settle("Stored")
        yield* settled
        assert.strictEqual(began, 2)
        assert.deepStrictEqual(keysOf(commits), ["before", "between"])
        yield* Deferred.succeed(statements[1], undefined)
        yield* Fiber.join(second)
        yield* settled
        // The commit before the changes was late: its decision is outdated.
        commits[0]!.settle("Fenced")
        yield* settled
        commits.find(({ key }) => key === "behind")!.settle("Stored")
        yield* settled
        assert.deepStrictEqual(commits.slice(2).map(({ key, version }) => [key, version]), [["behind", 2], [
          "before",
          2
        ]])
        commits[3]!.settle("Stored")
        assert.strictEqual(tagOf(yield* Fiber.join(before)), "done")
        assert.deepStrictEqual(keysOfPublished(world), ["between", "behind", "before"])
        assert.isTrue(world.actor.idle)
      }))

    it.effect("that failed may have been committed: the next send reads", () =>
      Effect.gen(function*() {
        const { change, commits, loads, send } = yield* makeWorld()
        assert.strictEqual(tagOf(yield* change(Effect.fail(new Unavailable()))), "Unavailable")
        const before = loads()
        yield* start(send("m1"))
        yield* settled
        assert.strictEqual(loads(), before + 1)
        assert.deepStrictEqual(keysOf(commits), ["m1"])
      }))

    it.effect("whose caller disconnects runs to its end if it has begun, and is dropped if it waits", () =>
      Effect.gen(function*() {
        const { actor, change, commits, send } = yield* makeWorld()
        const statement = Deferred.makeUnsafe<void>()
        const changing = yield* start(change(Deferred.await(statement)))
        const waiting = yield* start(change(Effect.void))
        yield* start(send("m1"))
        yield* Fiber.interrupt(changing)
        yield* Fiber.interrupt(waiting)
        assert.deepStrictEqual(keysOf(commits), [])
        yield* Deferred.succeed(statement, undefined)
        yield* settled
        assert.deepStrictEqual(commits.map(({ key, version }) => [key, version]), [["m1", 1]])
        commits[0]!.settle("Stored")
        assert.isTrue(actor.idle)
      }))
  })

  it.effect(`changes of a ${name} conversation that have waited for too long are dropped, unless they have begun`, () =>
    Effect.gen(function*() {
      let now = 1_000
      const { actor, change, commits, send } = yield* makeWorld({ monotonic: () => now })
      const statement = Deferred.makeUnsafe<void>()
      const begun = yield* start(change(Deferred.await(statement)))
      const early = yield* start(change(Effect.void))
      now = 2_000
      yield* start(send("m1"))
      const late = yield* start(change(Effect.void))
      actor.timeOutCallers(2_000)
      yield* Deferred.succeed(statement, undefined)
      assert.strictEqual(tagOf(yield* Fiber.join(begun)), "done")
      assert.strictEqual(tagOf(yield* Fiber.join(early)), "Unavailable")
      yield* settled
      // The change that was dropped has raised no version.
      assert.deepStrictEqual(commits.map(({ key, version }) => [key, version]), [["m1", 1]])
      commits[0]!.settle("Stored")
      assert.strictEqual(tagOf(yield* Fiber.join(late)), "done")
    }))

  describe(`a defect in a ${name} conversation`, () => {
    it.effect("in a read of the state ends the send that met it, and the others go on", () =>
      Effect.gen(function*() {
        let isBroken = true
        const read = Deferred.makeUnsafe<void>()
        const { actor, commits, send } = yield* makeWorld({
          isNew: true,
          beforeLoad: Effect.andThen(
            Deferred.await(read),
            Effect.suspend(() => {
              if (!isBroken) return Effect.void
              isBroken = false
              return Effect.die(defect)
            })
          )
        })
        const met = yield* start(send("m1"))
        const behind = yield* start(send("m2"))
        yield* Deferred.succeed(read, undefined)
        assert.deepStrictEqual(defectsOf(yield* Fiber.join(met)), [defect])
        yield* settled
        commits[0]!.settle("Stored")
        assert.strictEqual(tagOf(yield* Fiber.join(behind)), "done")
        assert.isTrue(actor.idle)
      }))

    it.effect("in the check of an attachment is the answer to its send", () =>
      Effect.gen(function*() {
        const { actor, commits, send } = yield* makeWorld({ useAttachment: () => Effect.die(defect) })
        assert.deepStrictEqual(defectsOf(yield* send("m1", "att_1")), [defect])
        const next = yield* start(send("m2"))
        yield* settled
        commits[0]!.settle("Stored")
        assert.strictEqual(tagOf(yield* Fiber.join(next)), "done")
        assert.isTrue(actor.idle)
      }))

    it.effect("in a batch is the answer to its send, and the sends behind it go on", () =>
      Effect.gen(function*() {
        const { actor, commits, send } = yield* makeWorld({ isNew: true })
        const met = yield* start(send("m1"))
        const behind = yield* start(send("m2"))
        commits[0]!.settle(BROKEN)
        assert.deepStrictEqual(defectsOf(yield* Fiber.join(met)), [defect])
        yield* settled
        commits[1]!.settle("Stored")
        assert.strictEqual(tagOf(yield* Fiber.join(behind)), "done")
        assert.isTrue(actor.idle)
      }))

    it.effect("in a change is the answer to the change, and the sends behind it go on", () =>
      Effect.gen(function*() {
        const { actor, change, commits, send } = yield* makeWorld()
        const statement = Deferred.makeUnsafe<never>()
        const changing = yield* start(change(Deferred.await(statement)))
        const behind = yield* start(send("m1"))
        yield* Deferred.die(statement, defect)
        assert.deepStrictEqual(defectsOf(yield* Fiber.join(changing)), [defect])
        yield* settled
        commits[0]!.settle("Stored")
        assert.strictEqual(tagOf(yield* Fiber.join(behind)), "done")
        assert.isTrue(actor.idle)
      }))

    it.effect("is logged if no caller is left to get it", () =>
      Effect.gen(function*() {
        const logged: Array<unknown> = []
        const logger = Logger.make(({ message }) => void logged.push(message))
        const { actor, commits, send } = yield* Effect.provide(makeWorld(), Logger.layer([logger]))
        const sending = yield* start(send("m1"))
        actor.timeOutCallers(1_001)
        yield* Fiber.join(sending)
        commits[0]!.settle(BROKEN)
        yield* settled
        assert.match(String(logged[0]), /callers had timed out/)
        assert.isTrue(actor.idle)
      }))
  })
}

describe("what an agent that is not a member asks of a group", () => {
  const stranger = { id: "agt_s", handle: "sss", displayName: "sss" }

  it.effect("holds up no send of a member if it is a change", () =>
    Effect.gen(function*() {
      const reads: Array<Deferred.Deferred<void>> = []
      const { actor, commits, join, send } = yield* group.make({
        ...SURROUNDINGS,
        beforeLoad: Effect.suspend(() => reads.length === 0 ? Effect.void : Deferred.await(reads.at(-1)!))
      })
      reads.push(Deferred.makeUnsafe())
      const given = { actorId: stranger.id, messageIds: [] }
      const changes = [
        actor.update({ ...given, name: "Mine" }),
        actor.delete(given),
        actor.leave(given),
        actor.remove({ ...given, targetId: a.id }),
        actor.add({ actorId: stranger.id, candidate: null, inviteId: "gri_1", restricted: false })
      ]
      const refused = yield* start(
        Effect.forEach(changes, (one) => Effect.exit<unknown, { readonly _tag: string }, never>(one), {
          concurrency: "unbounded"
        })
      )
      yield* start(send("m1"))
      yield* settled
      assert.deepStrictEqual(keysOf(commits), ["m1"])
      yield* Deferred.succeed(reads[0]!, undefined)
      assert.deepStrictEqual((yield* Fiber.join(refused)).map(tagOf), Array(5).fill("GroupNotFound"))

      // Nor does a member that may not delete the group.
      join(stranger)
      yield* start(send("s1", undefined, stranger))
      yield* settled
      reads.push(Deferred.makeUnsafe())
      const forbidden = yield* start(Effect.exit(actor.delete(given)))
      yield* start(send("m2"))
      yield* settled
      assert.deepStrictEqual(keysOf(commits), ["m1", "s1", "m2"])
      yield* Deferred.succeed(reads[1]!, undefined)
      assert.strictEqual(tagOf(yield* Fiber.join(forbidden)), "Forbidden")
    }))

  it.effect("holds up no send of a member if it accepts an invite to a group that is full", () =>
    Effect.gen(function*() {
      const reads: Array<Deferred.Deferred<void>> = []
      const { actor, commits, send } = yield* group.make({
        ...SURROUNDINGS,
        beforeLoad: Effect.suspend(() => reads.length === 0 ? Effect.void : Deferred.await(reads.at(-1)!))
      })
      reads.push(Deferred.makeUnsafe())
      const accepted = yield* start(
        Effect.exit(actor.accept({ actorId: b.id, handle: b.handle, inviteId: "gri_1", messageIds: [] }))
      )
      yield* start(send("m1"))
      yield* settled
      assert.deepStrictEqual(keysOf(commits), ["m1"])
      yield* Deferred.succeed(reads[0]!, undefined)
      assert.strictEqual(tagOf(yield* Fiber.join(accepted)), "GroupFull")
    }))

  it.effect("holds up no send of a member if it is a send, which is refused on rows that are read for it", () =>
    Effect.gen(function*() {
      const reads: Array<Deferred.Deferred<void>> = []
      const { commits, join, loads, send } = yield* group.make({
        ...SURROUNDINGS,
        beforeLoad: Effect.suspend(() => reads.length === 0 ? Effect.void : Deferred.await(reads.at(-1)!))
      })
      reads.push(Deferred.makeUnsafe())
      const refused = yield* start(send("s1", undefined, stranger))
      yield* start(send("s2", undefined, stranger))
      yield* settled
      assert.strictEqual(loads(), 2)
      yield* start(send("m1"))
      yield* settled
      assert.deepStrictEqual(keysOf(commits), ["m1"])
      yield* Deferred.succeed(reads[0]!, undefined)
      assert.strictEqual(tagOf(yield* Fiber.join(refused)), "GroupNotFound")
      // The agent joins through another owner of the group.
      join(stranger)
      yield* start(send("s3", undefined, stranger))
      yield* settled
      assert.deepStrictEqual(commits.map(({ key, version }) => [key, version]), [["m1", 0], ["s3", 1]])
    }))
})
