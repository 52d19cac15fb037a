import { displayNameOf } from "#domain/agents/Agent"
import { Agents } from "#domain/agents/Agents"
import { avatarUrlOf } from "#domain/agents/AvatarUrl"
import { Attachments } from "#domain/attachments/Attachments"
import { LAST_COMMITS } from "#domain/deliveries/Deliveries"
import { WebhookSignals } from "#domain/messages/WebhookSignals"
import { LiveAgents } from "#domain/push/LiveAgents"
import { makePublish } from "#domain/push/MessagePublisher"
import { makeSendQueues } from "#domain/sending/SendQueues"
import * as EntityRpc from "#infrastructure/cluster/EntityRpc"
import { laneOf, makeCommitQueue } from "#infrastructure/database/CommitQueue"
import { Database } from "#infrastructure/database/Sql"
import { AnswerTimeout } from "#infrastructure/database/Sql"
import { Config } from "#infrastructure/platform/Config"
import { Ids } from "#infrastructure/platform/Ids"
import { monotonicMillis } from "#infrastructure/platform/MonotonicClock"
import type { RateRule } from "#infrastructure/rates/RateRule"
import { SlidingWindows } from "#infrastructure/rates/SlidingWindows"
import { CALLER_TIMEOUT_MS, RateLimited } from "#infrastructure/wire/WireError"
import { Clock, Effect } from "effect"
import { GroupActor, type GroupDependencies } from "./GroupActor.ts"
import { type GroupAppend, type GroupAppended, makeGroupAppend, makeGroupAppendLocks } from "./GroupAppend.ts"
import { GroupEntity } from "./GroupEntity.ts"
import type { GroupQueries } from "./GroupQueries.ts"
import { GroupsRepo } from "./GroupsRepo.ts"

const LANES = 1

/** The queue in which the sends of all groups are committed in batches. */
const makeAppends = Effect.gen(function*() {
  const { driver } = yield* Database
  const appends = yield* makeCommitQueue<GroupAppend, GroupAppended>({
    name: "group_message",
    lanes: LANES,
    laneOf: (append) => laneOf(append.groupId),
    // Each message costs about as much as ten envelopes.
    rowsOf: (append) => append.size + 10,
    bytesOf: (append) => append.draft.content.length + append.draft.metadata.length,
    maxRows: 2_000,
    maxBytes: 4_194_304,
    capacity: 20_000,
    batchPerTick: driver === "pglite",
    commit: yield* makeGroupAppend((yield* WebhookSignals).raise),
    locks: yield* makeGroupAppendLocks
  })
  yield* Effect.addFinalizer(() => Effect.ignore(Effect.timeout(appends.idle, LAST_COMMITS)))
  return appends
})

/**
 * The rate limit of each group. All sends of a group run on its owner, so the windows are only in the owner's memory.
 */
const makeAdmit = Effect.gen(function*() {
  const config = yield* Config
  const windows = new SlidingWindows(monotonicMillis(yield* Clock.Clock))
  const perGroup: RateRule = {
    name: "group_send",
    limit: config.LIMITS_GROUP_SENDS_PER_SECOND,
    windowMs: 1_000,
    window: "group",
    message: (limit) => `The group is busy: it takes at most ${limit} messages per second.`
  }
  const admit: GroupDependencies["admit"] = config.LIMITS_GROUP_SENDS_PER_SECOND === 0 ? undefined : (groupId) => {
    const place = windows.take(perGroup, groupId)
    return place instanceof RateLimited ? place : () => windows.refund(perGroup, groupId, place)
  }
  return admit
})

/**
 * Makes the actors of the groups that this node owns, and the client that calls the owner of a group on any node.
 * Agents are notified of changes through `push`.
 */
export const makeGroupActors = Effect.fnUntraced(function*({ outside }: Pick<GroupQueries, "outside">) {
  const clock = yield* Clock.Clock
  const config = yield* Config
  const repo = yield* GroupsRepo
  const agents = yield* Agents
  const attachments = yield* Attachments
  const liveAgents = yield* LiveAgents
  const ids = yield* Ids
  const signals = yield* WebhookSignals
  const appends = yield* makeAppends
  const now = () => clock.currentTimeMillisUnsafe()
  const inviteLimit = config.LIMITS_GROUP_INVITES_PER_DAY
  const refusalMs = config.LIMITS_GROUP_REFUSAL_SECONDS * 1_000

  const push: GroupDependencies["push"] = (agentId, frame, after) => {
    liveAgents.push(agentId, after === null ? { _tag: "Event", frame } : { _tag: "Event", frame, after })
    signals.raise(agentId)
  }
  const dependencies: GroupDependencies = {
    appends,
    now,
    monotonic: monotonicMillis(clock),
    newMessageId: () => ids.make("msg"),
    // All later commands of the group wait for this read. So the read must not wait on a dead connection for longer
    // than callers wait.
    load: (groupId) => Effect.provideService(repo.load(groupId), AnswerTimeout, CALLER_TIMEOUT_MS),
    outside,
    useAttachment: (senderId, groupId, id, asks) => attachments.use(senderId, { _tag: "Group", groupId }, id, asks),
    status: (agentId) => repo.status(agentId, now()),
    invite: (state, inviterId, invite, at) =>
      repo.invite({ state, inviterId, invite, at, limit: inviteLimit, refusedAfter: at - refusalMs }),
    inviteById: repo.inviteById,
    change: (state, change, notices, at, silentId) =>
      Effect.tap(repo.change(state, change, notices, at, silentId), (committed) =>
        Effect.sync(() => {
          for (const envelopes of committed?.envelopes ?? []) {
            for (const { recipientId } of envelopes) signals.raise(recipientId)
          }
        })),
    earlier: repo.earlier,
    displayNames: (agentIds) =>
      // Sends wait for this read too.
      Effect.map(Effect.provideService(agents.byIds(agentIds), AnswerTimeout, CALLER_TIMEOUT_MS), (found) =>
        new Map([...found].map(([id, agent]) => [id, agent.deletedAt === null ? displayNameOf(agent) : null]))),
    publish: yield* makePublish,
    push,
    avatarUrl: (key) => avatarUrlOf(config, key),
    inviteLimit,
    refusalMs,
    maxMembers: config.LIMITS_GROUP_MEMBERS,
    admit: yield* makeAdmit,
    fork: Effect.runForkWith(yield* Effect.context<never>())
  }

  const actors = yield* makeSendQueues("group", GroupActor.make(dependencies))
  const client = yield* EntityRpc.make(GroupEntity, {
    SendToGroup: { run: (groupId, { command }) => actors.of(groupId).send(command) },
    Update: { run: (groupId, command) => actors.of(groupId).update(command) },
    ClearAvatar: { run: (groupId, command) => actors.of(groupId).clearAvatar(command) },
    Delete: { run: (groupId, command) => actors.of(groupId).delete(command) },
    Add: { run: (groupId, command) => actors.of(groupId).add(command) },
    Remove: { run: (groupId, command) => actors.of(groupId).remove(command) },
    Promote: { run: (groupId, command) => actors.of(groupId).promote(command) },
    Demote: { run: (groupId, command) => actors.of(groupId).demote(command) },
    Leave: { run: (groupId, command) => actors.of(groupId).leave(command) },
    Accept: { run: (groupId, command) => actors.of(groupId).accept(command) },
    Reject: { run: (groupId, command) => actors.of(groupId).reject(command) },
    Cancel: { run: (groupId, command) => actors.of(groupId).cancel(command) },
    Withdraw: { run: (groupId, command) => actors.of(groupId).withdraw(command) },
    Replace: { run: (groupId, command) => actors.of(groupId).replace(command) },
    Operate: { run: (groupId, command) => actors.of(groupId).operate(command) }
  })
  return { client, push, settled: appends.idle }
})
