import { Accounts } from "#domain/agents/Accounts"
import { Agents } from "#domain/agents/Agents"
import { Attachments } from "#domain/attachments/Attachments"
import { Contacts } from "#domain/contacts/Contacts"
import { Conversations, type SendAnswer } from "#domain/conversations/Conversations"
import { Deliveries } from "#domain/deliveries/Deliveries"
import { makeDirectIds } from "#domain/direct/DirectConversation"
import { Enforcement } from "#domain/enforcement/Enforcement"
import { EnforcementWatch } from "#domain/enforcement/EnforcementWatch"
import { Groups } from "#domain/groups/Groups"
import { Mutes } from "#domain/mutes/Mutes"
import type { LiveSession } from "#domain/push/LiveAgent"
import { LiveAgents } from "#domain/push/LiveAgents"
import { WebhookClient } from "#domain/webhooks/WebhookClient"
import { Webhooks } from "#domain/webhooks/Webhooks"
import { Secrets } from "#infrastructure/database/Secrets"
import { Blobs } from "#infrastructure/files/Blobs"
import { NameLookup } from "#infrastructure/http/PrivateAddressGuard"
import { Ids } from "#infrastructure/platform/Ids"
import { SocketSession } from "#interfaces/realtime/SocketSession"
import { Clock, Effect, Exit, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import { createHash } from "node:crypto"
import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Readable } from "node:stream"
import type { TestDatabase } from "../../../test/support/Databases.ts"
import { FakeSocket } from "../../../test/support/FakeSocket.ts"
import { leap } from "../../../test/support/Leap.ts"
import { draft, layerModules } from "../../../test/support/Modules.ts"
import type { Reaches } from "../Search.ts"
import { check, type Rule, ruleOfRefusal, same, Violation } from "../Violation.ts"
import { settlingWorld, turn } from "../World.ts"
import { makeAnswers, outcomeEvent, reactionEvent } from "./Answers.ts"
import type { File, Scope } from "./Attachments.ts"
import type { Metadata } from "./Causes.ts"
import type { Change, Group, Invite } from "./Groups.ts"
import { type Letter, type Slip, type State, stateOf } from "./Inboxes.ts"
import type { Ledger, Machine, MACHINES } from "./Ledger.ts"
import { AGENTS, isGroup, isRefused, LIMITS, nameOf, pairOf, RESERVED, type Sent, Society } from "./Society.ts"
import { makeSpending } from "./Spending.ts"
import { choose, type Stage } from "./Stage.ts"
import type { Status } from "./Standing.ts"
import type { Step } from "./Steps.ts"

const PUBLIC = "93.184.216.34"

/** A network in which every webhook's target accepts every post. */
const internet = Layer.mergeAll(
  Layer.succeed(NameLookup, () => Effect.succeed([PUBLIC])),
  Layer.succeed(WebhookClient, () => Effect.succeed(200))
)

/** The modules with limits that some forty steps reach, and with a folder of their own for files. */
export const layerSociety = (database: TestDatabase) =>
  Layer.unwrap(Effect.map(
    Effect.acquireRelease(
      Effect.promise(() => mkdtemp(join(tmpdir(), "parley-rules-"))),
      (path) => Effect.promise(() => rm(path, { recursive: true, force: true }))
    ),
    (DATA_DIR) =>
      layerModules(database, {
        DATA_DIR,
        LIMITS_SENDS_PER_SECOND: 1_000_000,
        LIMITS_COLD_CONVERSATIONS: LIMITS.cold,
        LIMITS_RESTRICT_BLOCKS: LIMITS.restrictBlocks,
        LIMITS_SUSPEND_BLOCKS: LIMITS.suspendBlocks,
        LIMITS_SUSPEND_REPORTS: LIMITS.suspendReports,
        LIMITS_GROUP_MEMBERS: LIMITS.members,
        LIMITS_GROUP_INVITES_PER_DAY: LIMITS.invitesPerDay,
        LIMITS_HOPS: LIMITS.hops
      })
  )).pipe(Layer.provideMerge(internet))

interface Connected {
  readonly agent: number
  readonly acknowledges: boolean
  readonly socket: FakeSocket
  readonly session: SocketSession
  readonly live: LiveSession
  /** The number of frames that were read. */
  seen: number
  /** The envelopes that it must show next. */
  due: Array<Slip>
  events: Array<string>
}

type Json = Record<string, unknown>
const parse = (text: string): Json => JSON.parse(text) as Json

let serial = 0

/** Runs histories against the modules, each with new agents, and compares with the model after every step. */
export const makeSocietyWorld = Effect.fnUntraced(function*(ledger: Ledger) {
  const sql = yield* SqlClient.SqlClient
  const accounts = yield* Accounts
  const liveAgents = yield* LiveAgents
  const agentsRoom = yield* Agents
  const attachments = yield* Attachments
  const blobs = yield* Blobs
  const contacts = yield* Contacts
  const conversations = yield* Conversations
  const deliveries = yield* Deliveries
  const enforcement = yield* Enforcement
  const groups = yield* Groups
  const ids = yield* Ids
  const mutes = yield* Mutes
  const watch = yield* EnforcementWatch
  const webhooks = yield* Webhooks
  const answering = yield* makeAnswers
  const directId = makeDirectIds((yield* Secrets).conversationIds)
  const clock = yield* Clock.Clock
  const now = () => clock.currentTimeMillisUnsafe()
  // The clock does not move while everything settles.
  const { settle, world } = yield* settlingWorld(() => turn)

  // TestClock prints a warning if a test never moves its clock.
  yield* TestClock.adjust(1)

  return Effect.fnUntraced(function*(steps: ReadonlyArray<Step>, reaches: Reaches = () => {}) {
    yield* leap(1)
    const society = new Society()
    society.now = now()
    const mark = (serial++).toString(36)
    const agents = Array.from(
      { length: AGENTS },
      (_, i) => ({ id: ids.make("agt"), handle: `r${mark}-${"abcdefgh"[i]}`, displayName: null })
    )
    yield* sql`
      INSERT INTO agents (id, handle, email, inbox_mode, group_invite_policy, created_at, updated_at)
      SELECT x.id, x.handle, x.handle || '@example.com', x.mode, x.mode, 0, 0
      FROM json_to_recordset(${
      JSON.stringify(agents.map((agent, i) => ({ ...agent, mode: i === RESERVED ? "contacts_only" : "open" })))
    }::json) AS x(id text, handle text, mode text)`
    yield* sql`INSERT INTO inboxes (agent_id) SELECT id FROM agents WHERE ${sql.in("id", agents.map(({ id }) => id))}`
    const all = agents.map((_, i) => i)
    const talkNames = new Map(
      all.flatMap((a) => all.filter((b) => b > a).map((b) => [directId(agents[a]!.id, agents[b]!.id), nameOf(a, b)]))
    )
    const talkIds = new Map([...talkNames].map(([id, name]) => [name, id]))
    const agentOf = new Map(agents.map(({ id }, i) => [id, i]))
    let sessions: Array<Connected> = []
    let observed: Array<Status | "deleted"> = agents.map(() => "active")
    /** Why agents change their standing in the current step. */
    let cause: "clock" | "unblock" | "operator" | "blocks" | "reports" = "clock"
    /** The new envelopes of the current step. */
    let fresh: Array<Slip> = []
    const shown = new Map<string, State>()
    let keys = 0

    const add = <M extends Machine>(machine: M, transition: typeof MACHINES[M][number], n = 1): void => {
      if (n > 0) ledger.add(machine, transition, n)
    }
    const alive = (agent: number): boolean => !society.deleted.has(agent)
    /** Whether an agent may do more than read its own status. */
    const able = (agent: number): boolean => alive(agent) && society.statusOf(agent) !== "suspended"
    const the = (agent: number) => agents[agent]!
    /** This agent, or the next one that is suitable, so that most steps have an effect. */
    const someone = (agent: number, suits: (agent: number) => boolean): number =>
      all.map((i) => (agent + i) % AGENTS).find((one) => able(one) && suits(one)) ?? agent
    const isInGroup = (agent: number): boolean =>
      society.groups.all.some((group) => society.groups.memberOf(group, agent) !== undefined)
    /** Whether a message of the conversation has changed since the agent last read it. */
    const isStale = (agent: number, talk: string): boolean =>
      society.visible(agent, talk).some((letter) =>
        stateOf(society.inboxes.shownTo(agent, letter)) !== (shown.get(`${agent} ${talk} ${letter.seq}`) ?? "stored")
      )
    const storedOf = (agent: number): ReadonlyArray<Slip> =>
      society.inboxes.of[agent]!.filter((slip) => slip.deliveredAt === null)
    const waits = (agent: number): boolean => storedOf(agent).length > 0
    const idOf = (talk: string): string => talkIds.get(talk) ?? ""
    const deliveryId = (slip: Slip): string => deliveries.ids.encode(the(slip.recipient).id, slip.inboxNo)
    const iso = (at: number | null): string | null => at === null ? null : new Date(at).toISOString()

    const failureOf = (exit: Exit.Exit<unknown, unknown>): Json | undefined => {
      if (Exit.isSuccess(exit)) return undefined
      const reason = exit.cause.reasons.find((one) => one._tag === "Fail")
      if (reason === undefined) throw new Violation("answered", `died: ${String(exit.cause)}`)
      return reason.error as Json
    }

    /** Checks that the answer is this refusal, or a success if `refused` is undefined. */
    const expect = (
      rule: Rule,
      exit: Exit.Exit<unknown, unknown>,
      refused: string | undefined,
      what: string
    ): boolean => {
      const failure = failureOf(exit)
      check(
        ruleOfRefusal(refused, rule),
        failure?.["_tag"] === refused,
        () => `${what}: got ${JSON.stringify(failure ?? "a success")}, expected ${refused ?? "a success"}`
      )
      ledger.answered(`${what}: ${refused ?? "done"}`)
      return refused === undefined
    }

    const expectWait = (
      rule: Rule,
      exit: Exit.Exit<unknown, unknown>,
      wait: number | undefined,
      what: string
    ): void => {
      if (wait === undefined) return
      same(rule, (failureOf(exit)?.["details"] as Json | undefined)?.["retry_after_ms"], wait, `${what}: the wait`)
    }

    /** Notes the new envelopes of the model. Their order may not be known yet. */
    const posted = (slips: ReadonlyArray<Slip>): void => {
      fresh.push(...slips)
    }

    /**
     * Takes the inbox numbers from storage, because several groups that change at once do so in no particular order.
     */
    const renumber = Effect.gen(function*() {
      const rows = yield* sql<{ recipient_id: string; no: number; conversation_id: string; seq: number }>`
        SELECT recipient_id, no, conversation_id, seq FROM envelopes WHERE ${
        sql.in("recipient_id", agents.map(({ id }) => id))
      }`
      const numbers = new Map(
        rows.map((row) => [`${agentOf.get(row.recipient_id)} ${talkNames.get(row.conversation_id)} ${row.seq}`, row.no])
      )
      for (const inbox of society.inboxes.of) {
        for (const slip of inbox) {
          slip.inboxNo = numbers.get(`${slip.recipient} ${slip.letter.talk} ${slip.letter.seq}`) ?? slip.inboxNo
        }
        inbox.sort((a, b) => a.inboxNo - b.inboxNo)
      }
    })

    /** Looks up the ids of system messages, which no answer contains. */
    const learn = Effect.gen(function*() {
      const unknown = fresh.filter((slip) => slip.letter.id === undefined)
      if (unknown.length === 0) return
      const rows = yield* sql<{ id: string; conversation_id: string; seq: number }>`
        SELECT id, conversation_id, seq FROM messages
        WHERE ${sql.in("conversation_id", [...new Set(unknown.map((slip) => idOf(slip.letter.talk)))])}`
      for (const { conversation_id, id, seq } of rows) {
        const letter = society.lettersOf(talkNames.get(conversation_id) ?? "")[seq - 1]
        if (letter !== undefined) letter.id ??= id
      }
    })

    const drop = (connected: Connected): void => {
      connected.session.ended()
      liveAgents.detach(the(connected.agent).id, connected.live)
      sessions = sessions.filter((one) => one !== connected)
    }

    const expelled = (agent: number): void => {
      for (const connected of sessions.filter((one) => one.agent === agent)) {
        check("socketsOfTheBanned", connected.socket.closedWith === 1008, () => `a socket of ${agent} was left open`)
        drop(connected)
      }
    }

    const isMuted = (agent: number, letter: Letter): boolean =>
      society.mutes.covers(agent, letter.sender, letter.talk, now())

    /** Notes that each new envelope is due on every socket of its recipient, unless it is muted now. */
    const push = (): void => {
      for (const slip of fresh.toSorted((a, b) => a.inboxNo - b.inboxNo)) {
        for (const connected of sessions.filter((one) => one.agent === slip.recipient)) {
          if (isMuted(slip.recipient, slip.letter)) {
            ledger.answered("push: muted")
            continue
          }
          ledger.answered("push: shown")
          connected.due.push(slip)
          if (!connected.acknowledges && society.inboxes.deliver(slip, now()))
            add("Envelope", "stored → delivered: legacy socket")
        }
      }
    }

    const observe = (): void => {
      for (const connected of sessions) {
        const said: Array<string> = []
        const events: Array<string> = []
        for (const { frame } of connected.socket.sent.slice(connected.seen)) {
          const { payload, type } = parse(frame) as { readonly payload: Json; readonly type: string }
          if (type === "message.new" && payload["sender"] !== the(connected.agent).handle) {
            same("shown", payload["status"], "stored", "a frame's status")
            said.push(
              `${talkNames.get(String(payload["conversation_id"]))} ${String(payload["seq"])} ${
                String(payload["delivery_id"])
              }`
            )
          } else if (type === "group.invite.received") events.push(`invite ${String(payload["id"])}`)
          else if (type === "group.deleted") events.push(`deleted ${String(payload["group_id"])}`)
          else if (type === "message.reaction") events.push(reactionEvent(payload))
          else if (type === "message.outcome") events.push(outcomeEvent(payload))
        }
        connected.seen = connected.socket.sent.length
        same(
          "pushedToAll",
          said,
          connected.due.map((slip) => `${slip.letter.talk} ${slip.letter.seq} ${deliveryId(slip)}`),
          `what ${connected.agent} was shown`
        )
        same("events", events, connected.events, `what ${connected.agent} was told`)
        check(
          "socketsStayOpen",
          connected.socket.closedWith === undefined,
          () => `a socket of ${connected.agent} was closed with ${connected.socket.closedWith}`
        )
        connected.due = []
        connected.events = []
      }
    }

    const tell = (agent: number, event: string): void => {
      for (const connected of sessions) if (connected.agent === agent) connected.events.push(event)
    }

    /** Checks the status of every agent as others see it. */
    const checkStanding = Effect.gen(function*() {
      for (const { id } of agents) agentsRoom.forget(id)
      const found = yield* agentsRoom.byIds(agents.map(({ id }) => id))
      const actual = agents.map(({ id }) => {
        const agent = found.get(id)
        return agent === undefined || agent.deletedAt !== null ? "deleted" as const : agent.status
      })
      same("standing", actual, all.map((agent) => alive(agent) ? society.statusOf(agent) : "deleted"), "statuses")
      for (const [agent, is] of actual.entries()) {
        const was = observed[agent]!
        if (was === is || was === "deleted") continue
        if (is === "deleted") add("Agent", `${was} → deleted`)
        else if (was === "active" && is === "restricted") add("Agent", "active → restricted: blocks")
        else if (was === "restricted" && is === "active") {
          add("Agent", `restricted → active: ${cause === "unblock" || cause === "operator" ? cause : "clock"}`)
        } else if (was === "suspended") add("Agent", "suspended → active: operator")
        else if (cause !== "clock" && cause !== "unblock")
          add("Agent", `${was as "active" | "restricted"} → suspended: ${cause}`)
        else if (cause === "unblock") ledger.answered("suspended by a recount after an unblock")
      }
      observed = actual
    })

    /** Checks the consequences of a suspension: sockets are closed, and groups get another admin. */
    const suspended = Effect.fnUntraced(function*(agent: number) {
      expelled(agent)
      yield* watch.handOver
      for (const group of society.groups.all) {
        const change = society.groups.replace(group, agent)
        if (change !== undefined) {
          changed(change, group)
          ledger.answered("a suspended last admin is replaced")
        }
      }
      yield* renumber
    })

    const changed = (change: Change, group: Group, flush?: typeof MACHINES["Envelope"][number]): void => {
      const { flushed, slips } = society.carryOut(change, group.name)
      if (flush !== undefined) add("Envelope", flush, flushed)
      posted(slips)
      add("Group invite", "pending → cancelled: group deleted", change.cancelled.length)
    }

    const said = (
      exit: Exit.Exit<SendAnswer, unknown>,
      outcome: Sent,
      what: string
    ): Letter | undefined => {
      if (outcome._tag === "Refused") {
        const rule = ruleOfRefusal(outcome.failure, what === "send" ? "refused" : "files")
        expect(rule, exit, outcome.failure, what)
        const details = (failureOf(exit)?.["details"] ?? {}) as Json
        for (const [name, value] of Object.entries(outcome.figures))
          same(rule, details[name], value, `${outcome.failure}: ${name}`)
        return undefined
      }
      const rule = outcome._tag === "Replayed" ? "replayed" : "stored"
      expect(rule, exit, undefined, what)
      if (!Exit.isSuccess(exit)) return undefined
      const message = parse(exit.value.body)
      const { letter } = outcome
      letter.id ??= String(message["id"])
      same(
        rule,
        [exit.value.created, message["id"], talkNames.get(String(message["conversation_id"])), message["seq"]],
        [outcome._tag === "Created", letter.id, letter.talk, letter.seq],
        what
      )
      same("hops", message["metadata"], letter.metadata, "the metadata of a message")
      if (outcome._tag === "Replayed") {
        same("budgets", exit.value.budget, undefined, "what a replay leaves of a budget")
        same(
          "shown",
          message["status"],
          stateOf(society.inboxes.shownTo(letter.sender, letter)),
          "the status of a replay"
        )
        ledger.answered(`${what}: replayed`)
        return letter
      }
      same("budgets", exit.value.budget, outcome.left, "what is left of a budget")
      if (outcome.left?.left === 0) add("Budget", `open → spent: ${outcome.left.scope}`)
      if (outcome.change === "opened") add("Direct conversation", "none → cold")
      if (outcome.change === "established") add("Direct conversation", "cold → established")
      posted(outcome.slips)
      return letter
    }

    /** Sends without comparing the answer with the model. */
    const attempt = (from: number, to: number | string, key: string, metadata: Metadata = {}, file?: File) =>
      Effect.exit(conversations.send(
        { ...the(from), budget: society.budgets.of(from) },
        typeof to === "number" ? { _tag: "Direct", handle: the(to).handle } : { _tag: "Conversation", id: idOf(to) },
        { ...draft(key), metadata: JSON.stringify(metadata), attachmentId: file?.id }
      ))

    /** Sends, and compares with the model. Returns the message if it is stored. */
    const send = Effect.fnUntraced(
      function*(from: number, to: number | string, key: string, metadata: Metadata = {}, file?: File) {
        // The server refuses all requests of a suspended agent before they reach a module. Here, only modules with a
        // check of their own refuse.
        if (!alive(from)) return
        // These are checked before the commit checks the sender.
        if (!able(from) && (society.budgets.of(from) !== null || metadata["caused_by"] !== undefined)) return
        if (!able(from) && typeof to === "string" && file !== undefined) return
        if (!able(from) && (typeof to === "number" ? !alive(to) || from === to : !society.isParticipant(from, to)))
          return
        const exit = yield* attempt(from, to, key, metadata, file)
        const before = file?.references ?? 0
        const outcome = society.send(from, to, key, metadata, file)
        const letter = said(exit, outcome, file === undefined ? "send" : "send with a file")
        if (outcome._tag === "Created" && file !== undefined)
          add("Attachment", before === 0 ? "stored → referenced" : "referenced → referenced")
        return letter
      }
    )

    const groupOf = (agent: number, pick: number): Group | undefined => {
      // Sometimes, a group is chosen of which the agent is not, or no longer, a member.
      const own = society.groups.all.filter((group) => society.groups.memberOf(group, agent) !== undefined)
      return pick % 12 === 0 || own.length === 0 ? choose(society.groups.all, pick >> 4) : choose(own, pick >> 4)
    }

    /** A group and one of its admins. */
    const ledBy = (agent: number, pick: number): { readonly group: Group | undefined; readonly by: number } => {
      const group = pick % 8 === 0
        ? groupOf(agent, pick)
        : choose(society.groups.all.filter((one) => one.deleted === undefined), pick >> 4)
      const admins = group === undefined ? [] : group.members.filter((one) => one.role === "admin" && able(one.agent))
      return { group, by: pick % 8 === 0 ? agent : choose(admins, agent)?.agent ?? agent }
    }

    const attach = Effect.fnUntraced(function*(agent: number, acknowledges: boolean) {
      const socket = new FakeSocket(now)
      const actor = liveAgents.here(the(agent).id)
      const session = new SocketSession(socket.asWebSocket, actor, the(agent).handle, acknowledges, world)
      const connected: Connected = { agent, acknowledges, socket, session, live: session, seen: 0, due: [], events: [] }
      liveAgents.attach(the(agent).id, session)
      yield* liveAgents.loadMutes(actor)
      session.start()
      sessions.push(connected)
      for (const slip of society.inboxes.of[agent]!) {
        if (slip.deliveredAt !== null || isMuted(agent, slip.letter)) continue
        connected.due.push(slip)
        if (!acknowledges && society.inboxes.deliver(slip, now())) add("Envelope", "stored → delivered: legacy socket")
      }
    })

    const invitesAgain = (invite: Invite, how: "pending" | "accepted"): void => {
      if (how === "pending") {
        add("Group invite", "none → pending")
        if (invite.again) add("Group invite", "none → pending: once a member")
      } else {
        add("Group invite", "pending → accepted")
        if (invite.again) add("Group invite", "pending → accepted: once a member")
      }
    }

    const complain = Effect.fnUntraced(function*(step: Extract<Step, { readonly wild: boolean }>) {
      const { pick, wild } = step
      // Mostly, the complaint is one that counts, against the agent that began the most conversations.
      const counting = [...society.talks.values()].flatMap((talk) => {
        const by = pairOf(talk.name).find((one) => one !== talk.initiator)!
        const done = step._tag === "Report"
          ? society.standing.reported(by, talk.initiator)
          : society.standing.blocking(by, talk.initiator)
        return able(by) && alive(talk.initiator) && done === (step._tag === "Unblock")
          ? [{ by, on: talk.initiator }]
          : []
      })
      const worst = counting.toSorted((a, b) => began(b.on) - began(a.on))[0]?.on
      const against = pick % 3 === 0 ? counting : counting.filter(({ on }) => on === worst)
      // An agent that has blocked another one may also report it.
      const both = step._tag === "Report" && pick % 2 === 0
        ? against.filter(({ by, on }) => society.standing.blocking(by, on))
        : []
      const { by, on } = wild || against.length === 0
        ? { by: step.by, on: pick % AGENTS }
        : choose(both.length === 0 ? against : both, pick >> 3)!
      if (able(by)) yield* complainOf(step._tag, by, on)
    })

    const complainOf = Effect.fnUntraced(function*(kind: "Block" | "Report" | "Unblock", by: number, on: number) {
      const { handle } = the(on)
      if (kind === "Unblock") {
        const blocks = society.standing.blocking(by, on)
        const exit = yield* Effect.exit(contacts.unblock(the(by).id, handle))
        if (!expect("complaints", exit, !alive(on) ? "AgentNotFound" : blocks ? undefined : "NotFound", "unblock"))
          return
        society.standing.unblock(by, on)
        cause = "unblock"
      } else {
        const refused = !alive(on)
          ? "AgentNotFound"
          : by === on
          ? "ValidationFailed"
          : kind === "Report" && society.standing.reported(by, on)
          ? "AlreadyReported"
          : undefined
        const exit = yield* Effect.exit(
          kind === "Block" ? contacts.block(the(by).id, handle) : contacts.report(the(by).id, handle, null)
        )
        if (!expect("complaints", exit, refused, kind.toLowerCase())) return
        society.standing.block(by, on, now())
        if (kind === "Report") society.standing.report(by, on, now())
        cause = "blocks"
      }
      const grounds = society.standing.judge(on, now())
      if (grounds === undefined) return
      cause = grounds
      yield* suspended(on)
    })

    const suspend = Effect.fnUntraced(function*(on: number) {
      const done = yield* enforcement.suspend({ agentId: the(on).id, operator: "ops", reason: null })
      same("standing", done, society.standing.suspend(on), "suspend")
      cause = "operator"
      if (done) yield* suspended(on)
    })

    const restore = Effect.fnUntraced(function*(on: number) {
      check(
        "standing",
        yield* enforcement.restore({ agentId: the(on).id, operator: "ops", reason: null }),
        () => "a restore did nothing"
      )
      society.standing.restore(on, now())
      cause = "operator"
    })

    /** Ends the current moment: waits until everything has settled, and compares it with the model. */
    const conclude = Effect.gen(function*() {
      yield* settle
      yield* learn
      push()
      yield* settle
      observe()
      yield* checkStanding
    })

    /** Advances to a later moment of the same step. */
    const later = (ms: number) =>
      Effect.andThen(
        leap(ms),
        Effect.sync(() => {
          cause = "clock"
          fresh = []
          society.now = now()
        })
      )

    /** The number of conversations that an agent began. */
    const began = (agent: number): number =>
      [...society.talks.values()].filter((talk) => talk.initiator === agent).length

    const mob = Effect.fnUntraced(
      function*({ agent: named, complaints, end }: Extract<Step, { readonly _tag: "Mob" }>) {
        const agent = someone(named, (one) => began(one) >= 2)
        for (const other of all) {
          if (other !== agent && alive(other) && !society.talks.has(nameOf(agent, other)))
            yield* send(agent, other, `m${keys++}`)
        }
        for (const { hours, kind, victim } of complaints) {
          yield* conclude
          yield* later(1 + hours * 3_600_000)
          // The end of this step needs a restricted agent, so no further complaints follow.
          if (end !== "nothing" && society.statusOf(agent) === "restricted") break
          const done = (one: number) =>
            kind === "Block" ? society.standing.blocking(one, agent) : society.standing.reported(one, agent)
          const may = (one: number) => society.talks.get(nameOf(one, agent))?.initiator === agent && !done(one)
          // An agent that has blocked already may also report. Its report adds no block.
          const blocker = kind === "Report" && victim % 3 < 2
            ? all.find((one) => able(one) && may(one) && society.standing.blocking(one, agent))
            : undefined
          const by = blocker ?? someone(victim, may)
          if (alive(agent) && able(by) && by !== agent) yield* complainOf(kind, by, agent)
        }
        if (end === "nothing") return
        for (const by of all) {
          if (!alive(agent) || society.statusOf(agent) !== "active") break
          if (
            able(by) && !society.standing.blocking(by, agent) &&
            society.talks.get(nameOf(by, agent))?.initiator === agent
          ) {
            yield* complainOf("Block", by, agent)
          }
        }
        if (!alive(agent)) return
        yield* conclude
        yield* later(1)
        if (end === "unblock") {
          for (const by of all) {
            if (society.statusOf(agent) !== "restricted") break
            if (able(by) && society.standing.blocking(by, agent)) yield* complainOf("Unblock", by, agent)
          }
        } else if (end === "suspend") yield* suspend(agent)
        else if (end === "delete") yield* remove(agent)
        else yield* restore(agent)
      }
    )

    const follow = Effect.fnUntraced(function*(pick: number) {
      const letters = [...society.letters.values()].flat().filter((letter) =>
        able(letter.sender) && society.isParticipant(letter.sender, letter.talk) &&
        society.visible(letter.sender, letter.talk).includes(letter) &&
        stateOf(society.inboxes.shownTo(letter.sender, letter)) === "stored" &&
        letter.recipients.length > 0 && letter.recipients.every(able)
      )
      const some = letters.filter((letter) => isGroup(letter.talk))
      const letter = choose(pick % 4 === 0 || some.length === 0 ? letters : some, pick >> 2)
      if (letter === undefined) return
      const slips = letter.recipients.map((agent) => society.inboxes.slip(agent, letter)!)
      // In one of three cases, the message is read without having been acknowledged.
      if (pick % 3 > 0) {
        for (const slip of slips) yield* acknowledge(slip)
        yield* lookAt(letter.sender, letter.talk)
        for (const slip of slips)
          if (society.isParticipant(slip.recipient, letter.talk)) yield* lookAt(slip.recipient, letter.talk)
        yield* conclude
        yield* later(1)
      }
      for (const slip of slips) {
        yield* read(slip)
        yield* lookAt(letter.sender, letter.talk)
      }
      for (const slip of slips)
        if (society.isParticipant(slip.recipient, letter.talk)) yield* lookAt(slip.recipient, letter.talk)
    })

    /** Advances to half an hour before a time, or to exactly that time, or to a moment before or after it. */
    const until = Effect.fnUntraced(
      function*(at: number, { early, offset }: Extract<Step, { readonly _tag: "Probe" }>) {
        yield* conclude
        yield* later(Math.max(1, at - (early ? 1_800_000 : 0) + offset - now()))
      }
    )

    const probe = Effect.fnUntraced(function*(step: Extract<Step, { readonly _tag: "Probe" }>) {
      const { pick } = step
      switch (pick % 3) {
        case 0: {
          // In this case, an agent begins as many conversations as it may.
          const strangers = (agent: number) =>
            all.filter((other) =>
              other !== agent && alive(other) && !society.talks.has(nameOf(agent, other)) &&
              !society.standing.apart(agent, other)
            )
          const agent = someone(step.agent, (one) => society.statusOf(one) === "active" && strangers(one).length > 1)
          if (!able(agent)) return
          for (const other of strangers(agent).slice(1)) {
            if (society.cold.refusal(agent, now()) !== undefined) break
            yield* send(agent, other, `p${keys++}`)
          }
          const full = society.cold.refusal(agent, now())
          const to = choose(strangers(agent), pick)
          if (full === undefined || to === undefined) return
          yield* send(agent, to, `p${keys++}`)
          yield* until(Date.parse(String(full["resets_at"])), step)
          if (alive(agent)) yield* send(agent, to, `p${keys++}`)
          return
        }
        case 1: {
          // In this case, an agent refuses an invite.
          const group = choose(society.groups.all.filter((one) => one.deleted === undefined), pick >> 2)
          const by = group?.members.find((member) => member.role === "admin" && able(member.agent))?.agent
          if (group === undefined || by === undefined) return
          const other = someone(step.agent, (one) => society.groups.memberOf(group, one) === undefined)
          yield* addTo(group, by, other, true)
          const invite = society.groups.invites.find((one) =>
            one.group === group.name && one.invitee === other && able(other)
          )
          if (invite === undefined) return
          yield* answerInvite({ _tag: "Reject", pick: 1 }, invite)
          const at = now()
          yield* addTo(group, by, other, true)
          yield* until(at + 86_400_000, step)
          if (able(by)) yield* addTo(group, by, other, true)
          return
        }
        default: {
          // In this case, an agent with a socket mutes another one for an hour.
          const talk = choose(
            [...society.talks.values()].filter((one) => one.established && pairOf(one.name).every(able)),
            pick >> 2
          )
          if (talk === undefined) return
          const [one, other] = pick % 2 === 0 ? pairOf(talk.name) : pairOf(talk.name).toReversed() as [number, number]
          if (!sessions.some((connected) => connected.agent === one)) yield* attach(one, pick % 4 < 2)
          yield* mutes.mute(the(one).id, { kind: "agent", handle: the(other).handle }, now() + 3_600_000)
          society.mutes.set(one, other, now() + 3_600_000)
          const ends = now() + 3_600_000
          yield* send(other, one, `p${keys++}`)
          yield* until(ends, step)
          if (able(other)) yield* send(other, one, `p${keys++}`)
          yield* checkMutes(one)
        }
      }
    })

    const acknowledge = Effect.fnUntraced(function*(slip: Slip) {
      const acked = yield* deliveries.acknowledgeThrough(the(slip.recipient).id, deliveryId(slip))
      const n = society.inboxes.deliverAll(slip.recipient, (one) => one.inboxNo <= slip.inboxNo, now())
      same("syncAck", acked, n, "acked")
      add("Envelope", "stored → delivered: sync/ack", n)
    })

    const read = Effect.fnUntraced(function*(slip: Slip) {
      const { id } = slip.letter
      if (id === undefined) return
      const { handle, id: reader } = the(slip.recipient)
      const message = parse(yield* deliveries.read(reader, handle, id))
      const was = society.inboxes.read(slip, now())
      if (was !== undefined) add("Envelope", `${was} → read: read`)
      same(
        "read",
        [message["status"], message["delivered_at"], message["read_at"]],
        ["read", iso(slip.deliveredAt), iso(slip.readAt)],
        "a message that is read"
      )
    })

    const removeOne = Effect.fnUntraced(function*(pick: number) {
      const living = all.filter(alive)
      const several = society.groups.all.filter((group) => group.members.length > 1)
      const inviting = society.groups.invites.filter((invite) => several.some((group) => group.name === invite.group))
      // Mostly, the inviter or the invitee of a pending invite is deleted, and the group keeps other members.
      if (pick % 6 > 1) {
        const group = choose(several, pick >> 4)
        const by = group?.members.find((member) => member.role === "admin" && able(member.agent))?.agent
        const outsiders = living.filter((agent) =>
          group !== undefined && society.groups.memberOf(group, agent) === undefined
        )
        for (const other of outsiders.slice(0, 3)) {
          if (group === undefined || by === undefined) break
          yield* addTo(group, by, other, true)
          const invite = society.groups.invites.find((one) => one.invitee === other && one.inviter === by)
          if (invite !== undefined) return yield* remove((pick >> 4) % 5 < 2 ? other : by)
        }
      }
      const wanted = [
        living.filter((agent) => society.statusOf(agent) === "suspended"),
        living.filter((agent) => society.statusOf(agent) === "restricted"),
        living.filter((agent) => inviting.some((invite) => invite.inviter === agent)),
        living.filter((agent) => society.groups.invites.some((invite) => invite.invitee === agent)),
        living.filter((agent) => inviting.some((invite) => invite.inviter === agent)),
        living
      ][pick % 6]!
      if (wanted.length === 0 && pick % 6 < 2) return
      yield* remove(choose(wanted.length === 0 ? living : wanted, pick >> 4)!)
    })

    const remove = Effect.fnUntraced(function*(agent: number) {
      if (all.filter(alive).length <= 3) return
      yield* accounts.remove(the(agent).id)
      expelled(agent)
      society.remove(agent)
      add(
        "Envelope",
        "stored → delivered: deletion of the recipient",
        society.inboxes.deliverAll(agent, () => true, now())
      )
      for (const group of society.groups.all) {
        const change = society.groups.memberOf(group, agent) === undefined
          ? undefined
          : society.groups.leave(group, agent, now())
        if (change !== undefined && !isRefused(change)) changed(change, group)
      }
      for (const invite of society.groups.withdraw(agent)) {
        add(
          "Group invite",
          invite.invitee === agent ? "pending → cancelled: invitee deleted" : "pending → cancelled: inviter deleted"
        )
      }
      yield* renumber
    })

    const create = Effect.fnUntraced(function*({ by, join, with: others }: Extract<Step, { readonly _tag: "Create" }>) {
      if (!able(by) || society.groups.all.filter((group) => group.deleted === undefined).length >= 3) return
      const exit = yield* Effect.exit(groups.create(the(by), {
        profile: { name: "Band", description: null, avatarUrl: null },
        handles: others.map((agent) => the(agent).handle)
      }))
      const outcome = society.groups.create(by, others, now())
      if (isRefused(outcome)) {
        expect("invites", exit, outcome.refused, "create a group")
        expectWait("invites", exit, outcome.retryAfter, "create a group")
        return
      }
      expect("groups", exit, undefined, "create a group")
      if (!Exit.isSuccess(exit)) return
      const { add_results, group, skipped } = exit.value
      outcome.group.id = group.id
      talkNames.set(group.id, outcome.group.name)
      talkIds.set(outcome.group.name, group.id)
      same(
        "invites",
        add_results.map((one) => one.handle),
        outcome.invites.map((invite) => the(invite.invitee).handle),
        "who is invited"
      )
      same("invites", skipped.length, outcome.skipped.length, "how many are skipped")
      outcome.invites.forEach((invite, i) => {
        invite.id = add_results[i]?.invite_id ?? ""
        invitesAgain(invite, "pending")
        tell(invite.invitee, `invite ${invite.id}`)
      })
      for (const invite of outcome.invites.slice(0, join)) {
        if (!able(invite.invitee)) continue
        const accepted = yield* Effect.exit(groups.accept(the(invite.invitee), invite.id))
        const change = groupChange(accepted, society.groups.accept(invite, now()), outcome.group, "accept")
        if (change !== undefined) invitesAgain(invite, "accepted")
      }
    })

    const addMember = Effect.fnUntraced(function*(step: Extract<Step, { readonly _tag: "Add" }>) {
      const { by, group } = ledBy(step.agent, step.pick)
      if (group === undefined || !able(by)) return
      const former = [...group.ever].filter((agent) =>
        alive(agent) && society.groups.memberOf(group, agent) === undefined
      )
      const other = step.pick % 3 > 0 ? choose(former, step.other) ?? step.other : step.other
      yield* addTo(group, by, other, step.pick % 4 === 0)
    })

    /** Invites an agent. A former member joins again at once, unless it hesitates. */
    const addTo = Effect.fnUntraced(function*(group: Group, by: number, other: number, hesitates: boolean) {
      const exit = yield* Effect.exit(groups.add(the(by), group.id, the(other).handle))
      const outcome = society.groups.add(group, by, other, now())
      if (outcome === "member") {
        expect("invites", exit, undefined, "add")
        if (Exit.isSuccess(exit)) same("invites", exit.value.outcome, "already_member", "add")
        return
      }
      if (isRefused(outcome)) {
        expect("invites", exit, outcome.refused, "add")
        return expectWait("invites", exit, outcome.retryAfter, "add")
      }
      expect("invites", exit, undefined, outcome.fresh ? "add" : "add again")
      if (!Exit.isSuccess(exit)) return
      if (!outcome.fresh) return same("invites", exit.value.invite_id, outcome.invite.id, "the id of a pending invite")
      outcome.invite.id = exit.value.invite_id ?? ""
      invitesAgain(outcome.invite, "pending")
      tell(other, `invite ${outcome.invite.id}`)
      if (!outcome.invite.again || hesitates || !able(other)) return
      const accepted = yield* Effect.exit(groups.accept(the(other), outcome.invite.id))
      const change = groupChange(accepted, society.groups.accept(outcome.invite, now()), group, "accept")
      if (change !== undefined) invitesAgain(outcome.invite, "accepted")
    })

    const groupChange = (
      exit: Exit.Exit<unknown, unknown>,
      outcome: Change | { readonly refused: string },
      group: Group,
      what: string,
      flush?: typeof MACHINES["Envelope"][number]
    ): Change | undefined => {
      if (isRefused(outcome)) {
        expect("groups", exit, outcome.refused, what)
        return undefined
      }
      expect("groups", exit, undefined, what)
      changed(outcome as Change, group, flush)
      return outcome as Change
    }

    const answerInvite = Effect.fnUntraced(
      function*(step: Extract<Step, { readonly _tag: "Accept" | "Reject" }>, known?: Invite) {
        const open = society.groups.invites.filter((one) => able(one.invitee))
        const invite = known ?? (step.pick % 2 === 1 ? open.find((one) => one.again) : undefined) ??
          choose(open, step.pick >> 3)
        if (invite === undefined) return
        const group = society.groups.all.find((one) => one.name === invite.group)!
        // Sometimes, another agent than the invitee uses the invite.
        const agent = step.pick % 8 === 0
          ? choose(all.filter((one) => able(one) && one !== invite.invitee), step.pick >> 3)
          : invite.invitee
        if (agent === undefined) return
        const exit = yield* Effect.exit(
          Effect.asVoid(
            step._tag === "Accept" ? groups.accept(the(agent), invite.id) : groups.reject(the(agent).id, invite.id)
          )
        )
        if (agent !== invite.invitee) {
          expect("masked", exit, "InviteNotFound", "another's invite")
          return
        }
        if (step._tag === "Reject") {
          expect("invites", exit, undefined, "reject")
          society.groups.reject(invite, now())
          add("Group invite", "pending → rejected")
          expect(
            "invites",
            yield* Effect.exit(groups.accept(the(agent), invite.id)),
            "InviteNotFound",
            "accept what was rejected"
          )
          return
        }
        if (groupChange(exit, society.groups.accept(invite, now()), group, "accept") !== undefined)
          invitesAgain(invite, "accepted")
      }
    )

    const hooked = Effect.fnUntraced(function*(agent: number, pick: number) {
      if (!able(agent) || sessions.some((one) => one.agent === agent && !one.acknowledges)) return
      const talks = society.talksOf(agent).filter((talk) =>
        isGroup(talk) || society.talks.get(talk)?.established === true
      )
      const talk = choose(talks, pick)
      if (talk === undefined) return
      const group = society.groups.all.find(({ name }) => name === talk)
      const present = group === undefined ? pairOf(talk) : group.members.map((member) => member.agent)
      const others = present.filter((one) => one !== agent && able(one))
      const sender = choose(others, pick >> 6)
      if (sender === undefined) return
      const { webhook } = yield* webhooks.create(
        the(agent).id,
        `https://hook-${mark}.example/`,
        ["message.new"],
        undefined
      )
      yield* send(sender, group === undefined ? agent : talk, `h${keys++}`)
      const slip = fresh.find((one) => one.recipient === agent)
      if (slip !== undefined && !isMuted(agent, slip.letter)) {
        for (let i = 0;; i++) {
          const [row] = yield* sql<{ delivered_at: number | null }>`
            SELECT delivered_at FROM envelopes WHERE recipient_id = ${the(agent).id} AND no = ${slip.inboxNo}`
          if (row !== undefined && row.delivered_at !== null) break
          check("webhooks", i < 500, () => "a webhook said 200, and its message is not delivered")
          yield* turn
        }
        if (society.inboxes.deliver(slip, now())) add("Envelope", "stored → delivered: webhook 2xx")
      } else if (slip !== undefined) ledger.answered("webhook: muted")
      yield* webhooks.remove(the(agent).id, webhook.id)
    })

    const look = Effect.fnUntraced(function*(agent: number, pick: number) {
      if (!able(agent)) return
      const invites = yield* groups.invites(the(agent).id)
      same(
        "invites",
        invites.map(({ id }) => id).toSorted(),
        society.groups.invites.filter((invite) => invite.invitee === agent).map(({ id }) => id).toSorted(),
        "pending invites"
      )
      const talks = society.talksOf(agent)
      const changing = talks.filter((talk) => isStale(agent, talk))
      const some = changing.length === 0 ? [choose(talks, pick)] : changing
      for (const talk of some.slice(0, 3)) if (talk !== undefined) yield* lookAt(agent, talk)
    })

    const lookAt = Effect.fnUntraced(function*(agent: number, talk: string) {
      const rows = yield* conversations.history(the(agent).id, idOf(talk), {
        limit: 100,
        before: null,
        after: null,
        around: null
      })
      const letters = society.visible(agent, talk).toReversed()
      same(
        "history",
        rows.map((row) => parse(row)["seq"]),
        letters.map((letter) => letter.seq),
        `history of ${talk} for ${agent}`
      )
      rows.forEach((row, i) => {
        const message = parse(row)
        const letter = letters[i]!
        const expected = society.inboxes.shownTo(agent, letter)
        const slip = society.inboxes.slip(agent, letter)
        letter.id ??= String(message["id"])
        same(
          "shown",
          [message["id"], message["status"], message["delivered_at"], message["read_at"], message["delivery_id"]],
          [
            letter.id,
            stateOf(expected),
            iso(expected.deliveredAt),
            iso(expected.readAt),
            slip === undefined ? null : deliveryId(slip)
          ],
          `message ${talk} ${letter.seq} as ${agent} sees it`
        )
        same("hops", message["metadata"], letter.metadata, `the metadata of ${talk} ${letter.seq}`)
        answers.checkShown(agent, letter, message)
        const viewing = `${agent} ${talk} ${letter.seq}`
        const was = shown.get(viewing) ?? "stored"
        const is = stateOf(expected)
        shown.set(viewing, is)
        if (was === is || is === "stored" || was === "read") return
        const to = letter.sender !== agent ? "its recipient" : isGroup(talk) ? "a group sender" : "a direct sender"
        if (was === "stored")
          add("Message as shown", is === "read" ? `to ${to}: stored → read` : `to ${to}: stored → delivered`)
        else add("Message as shown", `to ${to}: delivered → read`)
      })
      const direct = society.talks.get(talk)
      if (direct === undefined) return
      const { direct_state } = yield* conversations.context(the(agent).id, idOf(talk))
      same(
        "conversations",
        [direct_state?.state, direct_state?.initiated_by_self],
        [direct.established ? "established" : "cold", direct.initiator === agent],
        "the state of a conversation"
      )
    })

    const checkMutes = Effect.fnUntraced(function*(agent: number) {
      if (!able(agent)) return
      const nameOfTarget = (kind: string, id: string): string =>
        kind === "agent" ? String(agentOf.get(id)) : talkNames.get(id) ?? id
      const listed = yield* mutes.list(the(agent).id, undefined, { limit: 200 })
      const active = society.mutes.active(agent, now())
      same(
        "mutes",
        listed.items.map((mute) => `${nameOfTarget(mute.kind, mute.targetId)} ${mute.mutedUntil}`).toSorted(),
        active.map((target) =>
          `${target} ${society.mutes.end(agent, /^\d+$/.test(target) ? Number(target) : target, now()) ?? null}`
        ).toSorted(),
        "mutes"
      )
      const page = yield* conversations.list(the(agent).id, { limit: 200 })
      for (const item of page.items) {
        const talk = talkNames.get(item.id) ?? ""
        const other = isGroup(talk) ? undefined : pairOf(talk).find((one) => one !== agent)
        const muted = society.mutes.end(agent, talk, now()) !== undefined ||
          (other !== undefined && society.mutes.end(agent, other, now()) !== undefined)
        same("mutes", item.is_muted, muted, `is_muted of ${talk} for ${agent}`)
        ledger.answered(muted ? "is_muted: true" : "is_muted: false")
      }
    })

    const put = Effect.fnUntraced(function*(file: File, kind: "right" | "other" | "short") {
      const text = `file ${file.name} of ${mark}`
      const bytes = Buffer.from(kind === "right" ? text : kind === "other" ? text.replace("file", "elif") : "f")
      const { signedFiles } = blobs
      if (signedFiles === undefined) throw new Violation("files", "no signed files")
      const exit = yield* Effect.exit(
        signedFiles.accept(file.url.replace(/^.*\//, ""), Readable.from([bytes]), bytes.length)
      )
      if (expect("files", exit, society.files.put(file, kind, now()), "put")) add("Attachment", "reserved → stored")
    })

    const stage: Stage = {
      society,
      the,
      able,
      alive,
      someone,
      now,
      iso,
      add,
      expect,
      said,
      attempt,
      send,
      tell,
      lookAt,
      later: (ms) => Effect.andThen(conclude, later(ms)),
      key: () => `a${keys++}`
    }
    const answers = answering(stage)
    const spending = makeSpending(stage)

    const execute = Effect.fnUntraced(function*(step: Step) {
      switch (step._tag) {
        case "React":
          return yield* answers.react(step)
        case "Outcome":
          return yield* answers.report(step)
        case "Circle":
          return yield* spending.circle(step)
        case "Cause":
          return yield* spending.cause(step)
        case "Spend":
          return yield* spending.spend(step)
        case "Rush":
          return yield* spending.rush(step)
        case "Jump":
        case "Edge":
          return
        case "Send": {
          // Every second send goes to an agent without a conversation yet.
          const strangers = all.filter((agent) =>
            agent !== step.from && alive(agent) && !society.talks.has(nameOf(step.from, agent))
          )
          const to = step.key % 2 === 0 ? choose(strangers, step.to) ?? step.to : step.to
          yield* send(step.from, to, `k${step.key}`)
          return
        }
        case "Reply": {
          const waiting = [...society.talks.values()].filter((talk) =>
            pairOf(talk.name).includes(step.agent) && (step.pick % 3 !== 0 || !talk.established) &&
            talk.initiator !== step.agent
          )
          const talk = choose(waiting, step.pick)
          const partner = talk && pairOf(talk.name).find((one) => one !== step.agent)
          yield* send(step.agent, partner ?? step.pick % AGENTS, `${partner === undefined ? "o" : "r"}${keys++}`)
          return
        }
        case "Speak": {
          const agent = step.pick % 12 === 0 ? step.agent : someone(step.agent, isInGroup)
          const group = groupOf(agent, step.pick)
          if (group === undefined) yield* send(agent, step.pick % AGENTS, `o${keys++}`)
          else yield* send(agent, group.name, step.key % 9 === 0 ? `k${step.key}` : `s${keys++}`)
          return
        }
        case "Hooked":
          return yield* hooked(step.agent, step.pick)
        case "Block":
        case "Report":
        case "Unblock":
          yield* complain(step)
          // Another complaint often follows.
          if (step._tag === "Block" && step.pick % 3 > 0) yield* complain({ ...step, pick: step.pick + 3 })
          return
        case "Suspend": {
          const agent = choose(all.filter(alive), step.pick)!
          // Restricted agents are rare and more interesting, so they are preferred.
          const restricted = all.find((one) => alive(one) && society.statusOf(one) === "restricted")
          const on = step.pick % 3 > 0 ? restricted : agent
          if (on === undefined) return
          return yield* suspend(on)
        }
        case "Restore": {
          const fallen = all.filter((one) => alive(one) && society.statusOf(one) !== "active")
          const on = choose(fallen, step.pick)
          if (on === undefined) return
          return yield* restore(on)
        }
        case "Delete":
          return yield* removeOne(step.pick)
        case "Mob":
          return yield* mob(step)
        case "Probe":
          return yield* probe(step)
        case "Follow":
          return yield* follow(step.pick)
        case "Contact": {
          if (!able(step.agent)) return
          const exit = yield* Effect.exit(contacts.add(the(step.agent).id, the(step.other).handle, null))
          const refused = !alive(step.other)
            ? "AgentNotFound"
            : step.agent === step.other
            ? "ValidationFailed"
            : undefined
          if (expect("contacts", exit, refused, "add a contact")) society.contacts.add(`${step.agent} ${step.other}`)
          return
        }
        case "Create":
          return yield* create(step)
        case "Add":
          return yield* addMember(step)
        case "Accept":
        case "Reject":
          return yield* answerInvite(step)
        case "Cancel": {
          const invite = choose(society.groups.invites, step.pick >> 3)
          const group = society.groups.all.find((one) => one.name === invite?.group)
          if (invite === undefined || group === undefined) return
          const admin = group.members.find((one) => one.role === "admin" && able(one.agent))?.agent
          const by = step.pick % 4 === 0 ? step.by : admin ?? step.by
          if (!able(by)) return
          const exit = yield* Effect.exit(groups.cancel(the(by).id, group.id, invite.id))
          const outcome = society.groups.cancel(group, by, invite)
          if (expect("invites", exit, outcome?.refused, "cancel"))
            add("Group invite", "pending → cancelled: by an admin")
          return
        }
        case "Leave": {
          const agent = step.pick % 12 === 0 ? step.agent : someone(step.agent, isInGroup)
          const group = groupOf(agent, step.pick)
          if (group === undefined || !able(agent)) return
          const exit = yield* Effect.exit(groups.leave(the(agent).id, group.id))
          const outcome = society.groups.leave(group, agent, now())
          const change = groupChange(exit, outcome, group, "leave", "stored → delivered: leaving the group")
          if (change !== undefined && Exit.isSuccess(exit)) {
            same(
              "groups",
              exit.value,
              change.promoted === undefined ? null : the(change.promoted).handle,
              "who is promoted"
            )
          }
          return
        }
        case "Dissolve": {
          const open = society.groups.all.filter((one) => one.deleted === undefined)
          const group = step.pick % 3 === 0 ? groupOf(step.agent, step.pick) : choose(open, step.pick >> 4)
          const may = group?.owned === true ? group.creator : group?.members.find((one) => one.role === "admin")?.agent
          const by = step.pick % 3 === 0 ? step.agent : may ?? step.agent
          if (group === undefined || !able(by)) return
          const members = group.members.map(({ agent }) => agent)
          const exit = yield* Effect.exit(groups.remove(the(by).id, group.id))
          const outcome = society.groups.delete(group, by, now())
          const change = groupChange(
            exit,
            outcome,
            group,
            "delete a group",
            "stored → delivered: deletion of the group"
          )
          if (change !== undefined) {
            for (const agent of members)
              if (agent !== by)
                tell(agent, `deleted ${group.id}`)
          }
          return
        }
        case "Remove":
        case "Promote":
        case "Demote": {
          const { by, group } = ledBy(step.agent, step.pick)
          if (group === undefined || !able(by)) return
          // Members with undelivered messages of the group are preferred.
          const waiting = group.members.filter((one) =>
            one.agent !== by && storedOf(one.agent).some((slip) => slip.letter.talk === group.name)
          )
          const member = choose(step._tag === "Remove" && waiting.length > 0 ? waiting : group.members, step.other)
            ?.agent
          const on = step.pick % 5 === 0 || member === undefined ? step.other : member
          // A group does not know a deleted account.
          if (!alive(on)) return
          const { handle } = the(on)
          if (step._tag === "Remove") {
            const exit = yield* Effect.exit(groups.removeMember(the(by).id, group.id, handle))
            groupChange(
              exit,
              society.groups.remove(group, by, on),
              group,
              "remove",
              "stored → delivered: removal from the group"
            )
          } else {
            const promotes = step._tag === "Promote"
            const exit = yield* Effect.exit((promotes ? groups.promote : groups.demote)(the(by).id, group.id, handle))
            groupChange(
              exit,
              society.groups.setRole(group, by, on, promotes ? "admin" : "member"),
              group,
              step._tag.toLowerCase()
            )
          }
          return
        }
        case "Attach":
          if (able(step.agent) && sessions.filter((one) => one.agent === step.agent).length < 2)
            yield* attach(step.agent, step.acknowledges)
          return
        case "Detach": {
          const connected = choose(sessions, step.pick)
          if (connected !== undefined)
            drop(connected)
          return
        }
        case "AckFrame": {
          const asking = sessions.filter((one) => one.acknowledges)
          const busy = asking.filter((one) => waits(one.agent))
          const connected = choose(busy.length === 0 ? asking : busy, step.pick)
          if (connected === undefined) {
            const agent = someone(step.agent, waits)
            if (able(agent)) yield* attach(agent, true)
            return
          }
          const inbox = society.inboxes.of[connected.agent]!
          const slip = step.pick % 5 === 0
            ? choose(inbox, step.pick >> 3)
            : choose(storedOf(connected.agent), step.pick >> 3)
          if (slip?.letter.id === undefined) return
          yield* connected.session.acknowledge(slip.letter.id) ?? Effect.void
          add("Envelope", "stored → delivered: ack frame", Number(society.inboxes.deliver(slip, now())))
          return
        }
        case "AckThrough": {
          const agent = someone(step.agent, waits)
          const slip = choose(society.inboxes.of[agent]!, step.pick)
          if (slip === undefined || !able(agent)) return
          return yield* acknowledge(slip)
        }
        case "Read": {
          const agent = someone(step.agent, (one) => society.inboxes.of[one]!.some((slip) => slip.readAt === null))
          const inbox = society.inboxes.of[agent]!
          const unread = inbox.filter((slip) => slip.readAt === null)
          const delivered = unread.filter((slip) => slip.deliveredAt !== null)
          const some = step.pick % 4 === 0 ? inbox : step.pick % 4 === 1 || delivered.length === 0 ? unread : delivered
          const slip = choose(some, step.pick >> 3)
          if (slip === undefined || !able(agent)) return
          return yield* read(slip)
        }
        case "ReadThrough": {
          const agent = someone(step.agent, (one) => society.inboxes.of[one]!.some((slip) => slip.readAt === null))
          const unread = society.inboxes.of[agent]!.filter((slip) => slip.readAt === null).map((slip) =>
            slip.letter.talk
          )
          const own = society.talksOf(agent)
          const talk = step.pick % 4 === 0
            ? choose(own, step.pick >> 2)
            : choose(own.filter((one) => unread.includes(one)), step.pick >> 2)
          if (talk === undefined || !able(agent)) return
          const through = 1 + ((step.pick >> 4) % Math.max(1, society.lettersOf(talk).length))
          yield* deliveries.readThrough(the(agent).id, the(agent).handle, idOf(talk), through)
          for (const slip of society.inboxes.of[agent]!) {
            if (slip.letter.talk !== talk || slip.letter.seq > through) continue
            const was = society.inboxes.read(slip, now())
            if (was !== undefined) add("Envelope", `${was} → read: read_ack`)
          }
          return
        }
        case "HideMessage": {
          const agent = someone(step.agent, waits)
          const letter = step.pick % 3 === 0
            ? choose([...society.letters.values()].flat().filter((one) => one.sender === agent), step.pick >> 3)
            : choose(storedOf(agent), step.pick >> 3)?.letter
          if (letter?.id === undefined || !able(agent)) return
          yield* conversations.hideMessage(the(agent).id, letter.id)
          society.hidden.add(`${agent} ${letter.talk} ${letter.seq}`)
          const slip = society.inboxes.slip(agent, letter)
          if (slip !== undefined)
            add("Envelope", "stored → delivered: hide message", Number(society.inboxes.deliver(slip, now())))
          return
        }
        case "Hide": {
          const agent = someone(step.agent, waits)
          const waiting = storedOf(agent).map((slip) => slip.letter.talk)
          const own = society.talksOf(agent)
          const talk = step.pick % 3 === 0
            ? choose(own, step.pick)
            : choose(own.filter((one) => waiting.includes(one)), step.pick)
          if (talk === undefined || !able(agent)) return
          yield* conversations.hide(the(agent).id, idOf(talk))
          society.hiddenThrough.set(`${agent} ${talk}`, society.lettersOf(talk).length)
          const n = society.inboxes.deliverAll(agent, (slip) => slip.letter.talk === talk, now())
          add("Envelope", "stored → delivered: hide conversation", n)
          return
        }
        case "Mute": {
          if (!able(step.agent)) return
          const talk = choose(society.talksOf(step.agent), step.pick)
          const partner = talk === undefined || isGroup(talk)
            ? undefined
            : pairOf(talk).find((one) => one !== step.agent)
          const target = step.group && talk !== undefined
            ? talk
            : step.pick % 3 === 0
            ? step.pick % AGENTS
            : partner ?? step.pick % AGENTS
          const until = step.ms === null ? null : now() + step.ms
          const exit = yield* Effect.exit(mutes.mute(
            the(step.agent).id,
            typeof target === "string"
              ? { kind: "conversation", id: idOf(target) }
              : { kind: "agent", handle: the(target).handle },
            until
          ))
          const refused = typeof target === "string"
            ? undefined
            : !alive(target)
            ? "AgentNotFound"
            : target === step.agent
            ? "SelfMute"
            : undefined
          if (expect("mutes", exit, refused, "mute")) society.mutes.set(step.agent, target, until)
          if (step.pick % 2 === 0 && !sessions.some((one) => one.agent === step.agent))
            yield* attach(step.agent, step.pick % 4 === 0)
          return
        }
        case "Unmute": {
          const agent = someone(step.agent, (one) => society.mutes.active(one, now()).length > 0)
          if (!able(agent))
            return
          const active = society.mutes.active(agent, now())
          const name = step.pick % 4 === 0 ? String(step.pick % AGENTS) : choose(active, step.pick) ?? "0"
          const target = /^\d+$/.test(name) ? Number(name) : name
          const exit = yield* Effect.exit(mutes.lift(
            the(agent).id,
            typeof target === "string"
              ? { kind: "conversation", id: idOf(target) }
              : { kind: "agent", handle: the(target).handle }
          ))
          expect("mutes", exit, society.mutes.lift(agent, target, now()) ? undefined : "NotFound", "unmute")
          return
        }
        case "Mutes":
          return yield* checkMutes(someone(step.agent, (agent) => society.mutes.active(agent, now()).length > 0))
        case "Look":
          for (const from of [step.agent, step.agent + 1]) {
            const curious = (agent: number) =>
              step.pick % 6 === 0 || society.talksOf(agent).some((talk) => isStale(agent, talk))
            yield* look(someone(from % AGENTS, curious), step.pick)
          }
          return
        case "Reserve": {
          const { pick } = step
          const agent = pick % 5 === 0 ? step.agent : someone(step.agent, isInGroup)
          if (!able(agent)) return
          const group = groupOf(agent, pick)
          const friend = choose(
            [...society.talks.values()].filter((talk) => talk.established && pairOf(talk.name).includes(agent)),
            pick >> 4
          )
          const scope: Scope = step.group && group !== undefined
            ? group.name
            : (pick % 3 === 0 || friend === undefined ? undefined : pairOf(friend.name).find((one) => one !== agent)) ??
              (pick >> 4) % AGENTS
          const bytes = Buffer.from(`file ${society.files.files.length} of ${mark}`)
          const exit = yield* Effect.exit(attachments.reserve(the(agent).id, {
            to: typeof scope === "string"
              ? { _tag: "Group", groupId: idOf(scope) }
              : { _tag: "Handle", handle: the(scope).handle },
            filename: "a.txt",
            contentType: "text/plain",
            size: bytes.length,
            sha256: createHash("sha256").update(bytes).digest("hex")
          }))
          const refused = typeof scope === "string"
            ? society.isParticipant(agent, scope) || group === undefined
              ? undefined
              : society.groups.outside(group, agent).refused
            : !alive(scope)
            ? "AgentNotFound"
            : scope === agent
            ? "ValidationFailed"
            : society.standing.apart(agent, scope)
            ? "Blocked"
            : undefined
          if (!expect("files", exit, refused, "reserve a file") || !Exit.isSuccess(exit)) return
          const file = society.files.reserve(agent, scope, now())
          file.id = exit.value.id
          file.url = exit.value.uploadUrl
          add("Attachment", "none → reserved")
          if (step.put) yield* put(file, "right")
          return
        }
        case "Put": {
          const waiting = society.files.files.filter((file) => !file.stored && file.expires >= now() - 1)
          const file = choose(
            step.pick % 5 === 0 || waiting.length === 0 ? society.files.files : waiting,
            step.pick >> 3
          )
          return file === undefined ? undefined : yield* put(file, step.bytes)
        }
        case "Carry": {
          const file = choose(society.files.files.filter((one) => one.stored || step.pick % 6 === 0), step.pick >> 3)
          if (file === undefined) return
          const from = step.wild % 10 === 1 ? step.wild % AGENTS : file.uploader
          const group = choose(society.groups.all, step.wild)
          const to: Scope = step.wild % 10 === 2
            ? (step.wild >> 2) % AGENTS
            : step.wild % 10 === 3 && group !== undefined
            ? group.name
            : file.scope
          yield* send(from, to, `f${keys++}`, {}, file)
          if (step.pick % 2 === 0) yield* send(from, to, `f${keys++}`, {}, file)
          return
        }
        case "Download": {
          const file = choose(society.files.files, step.pick)
          if (file === undefined || !able(step.agent)) return
          const { scope } = file
          const group = society.groups.all.find(({ name }) => name === scope)
          const outside = group === undefined || society.isParticipant(step.agent, group.name)
            ? undefined
            : society.groups.outside(group, step.agent).refused
          const refused =
            step.agent !== file.uploader && (group === undefined ? scope !== step.agent : outside !== undefined)
              ? outside === "GroupDeleted" ? outside : "NotFound"
              : file.stored
              ? undefined
              : "NotFound"
          expect("files", yield* Effect.exit(attachments.downloadUrl(the(step.agent).id, file.id)), refused, "download")
        }
      }
    })

    /** Compares all stored rows of these agents with the model. */
    const audit = Effect.gen(function*() {
      const mine = agents.map(({ id }) => id)
      const envelopes = yield* sql<
        {
          recipient_id: string
          no: number
          conversation_id: string
          seq: number
          delivered_at: number | null
          read_at: number | null
        }
      >`SELECT * FROM envelopes WHERE ${sql.in("recipient_id", mine)} ORDER BY recipient_id, no`
      const counters = yield* sql<{ agent_id: string; last_no: number; undelivered: number }>`
        SELECT agent_id, last_no, undelivered FROM inboxes WHERE ${sql.in("agent_id", mine)}`
      for (const [i, { id }] of agents.entries()) {
        same(
          "envelopes",
          envelopes.filter((row) => row.recipient_id === id)
            .map((row) => [row.no, talkNames.get(row.conversation_id), row.seq, row.delivered_at, row.read_at]),
          society.inboxes.of[i]!.map((
            slip
          ) => [slip.inboxNo, slip.letter.talk, slip.letter.seq, slip.deliveredAt, slip.readAt]),
          `envelopes of ${i}`
        )
        const counter = counters.find((row) => row.agent_id === id)
        same(
          "counted",
          [counter?.last_no, counter?.undelivered],
          [society.inboxes.of[i]!.length, society.inboxes.of[i]!.filter((slip) => slip.deliveredAt === null).length],
          `inbox of ${i}`
        )
      }
      const talks = yield* sql<{ id: string; initiator_id: string; established_at: number | null; last_seq: number }>`
        SELECT * FROM conversations WHERE ${sql.in("id", [...talkNames.keys()])}`
      same(
        "conversations",
        talks.flatMap((row) => {
          const name = talkNames.get(row.id) ?? ""
          // A block may have created the conversation's row before its first message.
          if (isGroup(name) || row.last_seq === 0) return []
          return [`${name} ${agentOf.get(row.initiator_id)} ${row.established_at !== null} ${row.last_seq}`]
        }).toSorted(),
        [...society.talks.values()].map(({ established, initiator, name }) =>
          `${name} ${initiator} ${established} ${society.lettersOf(name).length}`
        ).toSorted(),
        "conversations"
      )
      yield* answers.audit(talkNames)
      if (society.groups.all.length === 0) return
      const groupIds = society.groups.all.map(({ id }) => id)
      const members = yield* sql<{ group_id: string; agent_id: string; role: string }>`
        SELECT group_id, agent_id, role FROM group_members WHERE left_at IS NULL AND ${sql.in("group_id", groupIds)}`
      // The rows of a deleted group show only its former members.
      const open = new Set(society.groups.all.filter((group) => group.deleted === undefined).map(({ id }) => id))
      same(
        "groups",
        members.filter((row) => open.has(row.group_id)).map((row) =>
          `${talkNames.get(row.group_id)} ${agentOf.get(row.agent_id)} ${row.role}`
        ).toSorted(),
        society.groups.all.flatMap((group) => group.members.map((one) => `${group.name} ${one.agent} ${one.role}`))
          .toSorted(),
        "members"
      )
      const invites = yield* sql<{ id: string }>`SELECT id FROM group_invites WHERE ${sql.in("group_id", groupIds)}`
      same(
        "invites",
        invites.map(({ id }) => id).toSorted(),
        society.groups.invites.map(({ id }) => id).toSorted(),
        "invites"
      )
    })

    yield* Effect.gen(function*() {
      for (const [i, step] of steps.entries()) {
        reaches(i)
        cause = "clock"
        fresh = []
        let ms = 1
        if (step._tag === "Jump") ms = step.ms
        if (step._tag === "Edge") {
          const edge = choose(
            society.edges().filter((at) => at + step.offset > now()).toSorted((a, b) => a - b),
            step.pick
          )
          if (edge !== undefined) ms = edge + step.offset - now()
        }
        yield* leap(ms)
        society.now = now()
        yield* execute(step)
        yield* conclude
      }
      reaches(steps.length)
      yield* audit
    }).pipe(Effect.ensuring(Effect.sync(() => {
      for (const connected of sessions) drop(connected)
    })))
  })
})
