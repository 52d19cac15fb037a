import { plainName } from "#infrastructure/wire/Name"
import { assert } from "@effect/vitest"
import { createHash } from "node:crypto"
import sharp from "sharp"
import { EventReceiver } from "../mcp/EventReceiver.ts"
import { connected } from "../support/Connected.ts"
import type { Answer } from "../support/Http.ts"
import { patient } from "../support/Patient.ts"
import { freshHandle, newAgent, type Server, type TestAgent } from "../support/Server.ts"
import { freshMsgId, inbox, say } from "./Talk.ts"

/** Choices of a generated request, the same for the same seed. */
export interface Dice {
  readonly pick: <A>(list: ReadonlyArray<A>) => A
  readonly coin: () => boolean
}

/** What a generated value becomes: a fixed one, or one made from it; `undefined` leaves the field out. */
type Field = ((generated: unknown) => unknown) | string | number | boolean | null | object | undefined

/** A request that the server should grant, as far as no schema says it. */
export interface Call {
  /** Nobody: without a key. */
  readonly as?: TestAgent
  readonly path?: Readonly<Record<string, string>>
  readonly query?: Readonly<Record<string, string | undefined>>
  readonly body?: Readonly<Record<string, Field>>
  readonly raw?: Uint8Array<ArrayBuffer>
  /** Told of the answer. */
  readonly done?: (answer: Answer) => void
}

export const diceOf = (numbers: ReadonlyArray<number>): Dice => {
  let next = 0
  const roll = () => numbers[next++ % numbers.length] ?? 0
  return {
    // The type of an element, undefined included, if there is one.
    pick: <A>(list: ReadonlyArray<A>) =>
      list.length === 0 ? assert.fail("nothing to pick from") : list[roll() % list.length] as A,
    coin: () => roll() % 2 === 0
  }
}

/** The generated body, in which the plan's fields stand. */
export const filled = (generated: unknown, fields: Call["body"]): unknown => {
  if (fields === undefined) return generated
  const body = { ...(generated as Record<string, unknown>) }
  for (const [name, field] of Object.entries(fields)) {
    const value: unknown = typeof field === "function" ? (field as (value: unknown) => unknown)(body[name]) : field
    if (value === undefined) delete body[name]
    else body[name] = value
  }
  return body
}

type Plan = (world: LiveWorld, dice: Dice) => Call | Promise<Call>

const must = <A>(value: A | undefined): A => value ?? assert.fail("the world lacks something")

/** The port that discards; nobody listens. */
const NOWHERE = "http://127.0.0.1:9"

const field = (answer: Answer, name: string): string => {
  const value = (answer.body as Readonly<Record<string, unknown>>)[name]
  return typeof value === "string" ? value : assert.fail(`${answer}: no ${name}`)
}

const granted = (answer: Answer): Answer => {
  assert.isBelow(answer.status, 400, `${answer}`)
  return answer
}

/** A file that its uploader announced and put. */
const upload = async (agent: TestAgent, target: object): Promise<string> => {
  const bytes = new TextEncoder().encode(`a file, number ${freshMsgId()}`)
  const reserved = granted(
    await agent.http.post("/v1/uploads", {
      ...target,
      filename: "a.txt",
      content_type: "text/plain",
      size: bytes.length,
      sha256: createHash("sha256").update(bytes).digest("hex")
    })
  )
  const put = await patient(field(reserved, "upload_url"), { method: "PUT", body: bytes })
  assert.strictEqual(put.status, 200)
  return field(reserved, "attachment_id")
}

export const groupWith = async (admin: TestAgent, guests: ReadonlyArray<TestAgent>) => {
  const made = granted(
    await admin.http.post("/v1/groups", { name: "A group", member_handles: guests.map((guest) => guest.handle) })
  ).body as {
    readonly group: { readonly id: string }
    readonly add_results: ReadonlyArray<{ readonly invite_id: string }>
  }
  return { id: made.group.id, invites: made.add_results.map((result) => result.invite_id) }
}

const joined = async (admin: TestAgent, guests: ReadonlyArray<TestAgent>): Promise<string> => {
  const { id, invites } = await groupWith(admin, guests)
  await Promise.all(
    guests.map(async (guest, at) => granted(await guest.http.post(`/v1/groups/invites/${must(invites[at])}/accept`)))
  )
  return id
}

const picture = async (side: number, format: "png" | "jpeg" | "webp" | "gif"): Promise<Uint8Array<ArrayBuffer>> =>
  new Uint8Array(
    await sharp({ create: { width: side, height: side, channels: 3, background: "#4080c0" } }).toFormat(format)
      .toBuffer()
  )

/** Agents with everything that a request can name; what a request uses up is made anew for each. */
export interface LiveWorld {
  readonly server: Server
  /** All in one group, and each in a conversation with the first. */
  readonly friends: ReadonlyArray<TestAgent>
  /** Has nothing. */
  readonly stranger: TestAgent
  /** Where requests go that would disturb others. */
  readonly loners: Readonly<Record<"profile" | "lost" | "blocker" | "blocked" | "mover" | "guest", TestAgent>>
  readonly group: string
  readonly deadGroup: string
  readonly groupMessage: string
  /** Established ones of friends, with their first message. */
  readonly conversations: ReadonlyArray<readonly [one: TestAgent, other: TestAgent, id: string, message: string]>
  /** Of the loners mover and guest. */
  readonly hideable: string
  readonly file: { readonly from: TestAgent; readonly to: TestAgent; readonly id: string }
  readonly groupFile: string
  readonly deadFile: string
  readonly webhook: string
  /** Of the first friend. */
  readonly connection: string
  /** Repeats the challenges of wake webhooks. */
  readonly receiver: EventReceiver
  readonly pictures: ReadonlyArray<Uint8Array<ArrayBuffer>>
  /** Ids and handles of every kind that are somebody's. */
  readonly foreign: ReadonlyArray<string>
  readonly fresh: () => Promise<TestAgent>
  /** The agent whose key is rotated, with the key that is good now. */
  readonly turner: () => TestAgent
  readonly turned: (answer: Answer) => void
  /** Two agents of which the first has not reported the second. */
  readonly reportable: () => Promise<readonly [reporter: TestAgent, target: TestAgent]>
}

export const makeWorld = async (server: Server): Promise<LiveWorld> => {
  const make = (name: string) => newAgent(server, name)
  const [ann, ben, cleo, dan] = await Promise.all([make("ann"), make("ben"), make("cleo"), make("dan")])
  const [stranger, profile, lost, blocker, blocked] = await Promise.all(
    [make("stranger"), make("profile"), make("lost"), make("blocker"), make("blocked")]
  )
  const [mover, guest, key] = await Promise.all([make("mover"), make("guest"), make("key")])
  const friends = [ann, ben, cleo, dan]
  const loners = { profile, lost, blocker, blocked, mover, guest }
  const established = async (one: TestAgent, other: TestAgent) => {
    const { conversation_id, id } = await say(one, other)
    await say(other, one)
    return [one, other, conversation_id, id] as const
  }
  const conversations = [
    await established(ann, ben),
    await established(ann, cleo),
    await established(dan, ann),
    await established(ben, cleo)
  ]
  const group = await joined(ann, [ben, cleo, dan])
  const deadGroup = await joined(ann, [ben])
  const deadFile = await upload(ann, { conversation_id: deadGroup })
  granted(await ann.http.delete(`/v1/groups/${deadGroup}`))
  const said = await ben.http.post("/v1/messages", {
    conversation_id: group,
    client_msg_id: freshMsgId(),
    content: { text: "hello everybody" }
  })
  const groupMessage = field(granted(said), "id")
  const hook = await ann.http.post("/v1/webhooks", { url: NOWHERE, events: ["contact.blocked"] })
  const webhook = field(granted(hook), "id")
  const file = { from: ann, to: ben, id: await upload(ann, { to: ben.handle }) }
  // Not the one whose key is lost.
  const reporters = [profile, blocker, blocked, mover, guest]
  let turning = key
  let reports = 0
  let target = stranger
  return {
    server,
    friends,
    stranger,
    loners,
    group,
    deadGroup,
    groupMessage,
    conversations,
    hideable: (await established(mover, guest))[2],
    file,
    groupFile: await upload(ann, { conversation_id: group }),
    deadFile,
    webhook,
    connection: await connected(server, ann),
    receiver: await EventReceiver.start(),
    pictures: await Promise.all([picture(128, "png"), picture(200, "jpeg"), picture(140, "webp"), picture(300, "gif")]),
    foreign: conversations.slice(0, 2).flatMap(([, , id, message]) => [id, message])
      .concat(
        ann.id,
        ann.handle,
        group,
        deadGroup,
        deadGroup,
        groupMessage,
        webhook,
        file.id,
        deadFile,
        stranger.handle
      ),
    fresh: () => make("fresh"),
    turner: () => turning,
    turned: (answer) => {
      if (answer.status !== 200) return
      const next = field(answer, "api_key")
      turning = { ...turning, key: next, http: server.http(next) }
    },
    reportable: async () => {
      const at = reports++ % reporters.length
      if (at === 0) target = await make("reported")
      return [must(reporters[at]), target]
    }
  }
}

const page = (dice: Dice): Readonly<Record<string, string | undefined>> => ({
  limit: dice.pick([undefined, "1", "2", "50", "200", "201", "100000"]),
  offset: dice.pick([undefined, undefined, "0", "1", "7"]),
  cursor: undefined
})

/** A page of this list, sometimes the one behind a cursor. */
const pageOf = async (agent: TestAgent, path: string, dice: Dice): Promise<Call> => {
  if (dice.coin()) return { as: agent, query: page(dice) }
  const next = granted(await agent.http.get(`${path}?limit=1`)).header("x-next-cursor") ??
    (granted(await agent.http.get(`${path}?limit=1`)).body as { readonly next_cursor?: string | null }).next_cursor
  return { as: agent, query: { limit: "2", offset: undefined, cursor: next ?? undefined } }
}

const listed = (path: string): Plan => (world, dice) => pageOf(friend(world, dice), path, dice)

const friend = (world: LiveWorld, dice: Dice): TestAgent => dice.pick(world.friends)

/** Another friend than this one. */
const otherThan = (world: LiveWorld, dice: Dice, agent: TestAgent): TestAgent =>
  dice.pick(world.friends.filter((one) => one !== agent))

/** As callers write a handle. */
const written = (dice: Dice, agent: TestAgent): string =>
  dice.pick([agent.handle, `@${agent.handle}`, agent.handle.toUpperCase(), ` ${agent.handle} `])

const own = (agent: TestAgent): Call => ({ as: agent, path: { handle: agent.handle } })

const someFile: Plan = (world, dice) =>
  dice.coin()
    ? { as: dice.pick([world.file.from, world.file.to]), path: { id: world.file.id } }
    : { as: friend(world, dice), path: { id: world.groupFile } }

const reaction: Plan = (world, dice) => {
  const [one, other, , id] = dice.pick(world.conversations)
  return { as: dice.pick([one, other]), path: { id, emoji: dice.pick(["thanks", "+1", "👍", "👩🏽‍🚀", "🇵🇹"]) } }
}

const conversation: Plan = (world, dice) => {
  const [one, other, id] = dice.pick(world.conversations)
  return dice.coin()
    ? { as: dice.pick([one, other]), path: { id } }
    : { as: friend(world, dice), path: { id: world.group } }
}

const admin = (world: LiveWorld, path: Readonly<Record<string, string>> = {}): Call => ({
  as: must(world.friends[0]),
  path: { id: world.group, ...path }
})

/** The document does not say what a name may not hold, because blanks around it are removed first. */
const named = (generated: unknown): string => `A ${[...plainName(String(generated))].slice(0, 80).join("")}`

const avatarUrl = (dice: Dice): Field => dice.pick([undefined, null, "https://example.com/a.png"])

const rotation = async (world: LiveWorld): Promise<{ readonly pending_id: string; readonly code: string }> => {
  const agent = world.turner()
  const begun = granted(await agent.http.post(`/v1/agents/${agent.handle}/rotate-key`))
  return { pending_id: field(begun, "pending_id"), code: await world.server.code(agent.email) }
}

/** Not in the friends' group: a request that hits another group by mistake must not take a friend out of theirs. */
const withMember: Plan = async ({ loners: { guest, mover } }) => ({
  as: mover,
  path: { id: await joined(mover, [guest]), handle: guest.handle }
})

const invited: Plan = async ({ loners: { guest, mover } }) => {
  const { invites } = await groupWith(mover, [guest])
  return { as: guest, path: { id: must(invites[0]) } }
}

const muted =
  (pairOf: (world: LiveWorld, dice: Dice) => readonly [TestAgent, TestAgent]): Plan => async (world, dice) => {
    const [one, other] = pairOf(world, dice)
    granted(await one.http.post("/v1/mutes", { target_kind: "agent", target_handle: other.handle }))
    return { as: one, path: { handle: written(dice, other).trim() } }
  }

const mutedConversation = async (one: TestAgent, id: string): Promise<Call> => {
  granted(await one.http.post("/v1/mutes", { target_kind: "conversation", target_id: id }))
  return { as: one, path: { id } }
}

/** One that is there already if there is any. */
const hooked = async ({ mover }: LiveWorld["loners"]): Promise<string> => {
  const { webhooks: [known] } = granted(await mover.http.get("/v1/webhooks")).body as {
    readonly webhooks: ReadonlyArray<{ readonly id: string }>
  }
  return known?.id ??
    field(granted(await mover.http.post("/v1/webhooks", { url: NOWHERE, events: ["message.new"] })), "id")
}

const contactOfMover = async (world: LiveWorld, dice: Dice): Promise<Call> => {
  const target = friend(world, dice)
  granted(await world.loners.mover.http.post("/v1/contacts", { handle: target.handle }))
  return { as: world.loners.mover, path: { handle: target.handle } }
}

/** Per operation of the document, what makes a request one that is granted; the rest is generated from its schemas. */
export const plans: Readonly<Record<string, Plan>> = {
  "POST /v1/register": () => {
    const handle = freshHandle("new")
    return { body: { handle, email: `${handle}@example.com` } }
  },
  "POST /v1/register/verify": async (world) => {
    const handle = freshHandle("new")
    const email = `${handle}@example.com`
    const begun = granted(await world.server.http().post("/v1/register", { handle, email }))
    return { body: { pending_id: field(begun, "pending_id"), code: await world.server.code(email) } }
  },
  "POST /v1/agents/recover": (world, dice) => ({
    body: { email: dice.pick([world.stranger.email, "nobody@example.com"]) }
  }),
  "POST /v1/agents/recover/verify": async (world) => {
    const { email } = world.loners.lost
    const begun = granted(await world.server.http().post("/v1/agents/recover", { email }))
    return { body: { pending_id: field(begun, "pending_id"), code: await world.server.code(email) } }
  },
  "GET /v1/agents/{handle}": (world, dice) => ({
    as: friend(world, dice),
    path: { handle: written(dice, friend(world, dice)) }
  }),
  // One skill keeps within the bytes that all skills may have together, and has no id that another one has.
  "PATCH /v1/agents/{handle}": (world) => ({
    ...own(world.loners.profile),
    body: { skills: (generated: unknown) => Array.isArray(generated) ? generated.slice(0, 1) : generated }
  }),
  "DELETE /v1/agents/{handle}": async (world) => own(await world.fresh()),
  "POST /v1/agents/{handle}/rotate-key": (world) => own(world.stranger),
  "POST /v1/agents/{handle}/rotate-key/verify": async (world) => ({
    ...own(world.turner()),
    body: await rotation(world),
    done: (answer) => world.turned(answer)
  }),
  "GET /v1/agents/me": (world, dice) => ({ as: friend(world, dice) }),
  "PUT /v1/agents/{handle}/avatar": (world, dice) => ({ ...own(world.loners.profile), raw: dice.pick(world.pictures) }),
  "DELETE /v1/agents/{handle}/avatar": async (world) => {
    const agent = world.loners.guest
    granted(await agent.http.request("PUT", `/v1/agents/${agent.handle}/avatar`, { raw: must(world.pictures[0]) }))
    return own(agent)
  },
  "GET /v1/directory": (world, dice) => {
    const q = friend(world, dice).handle.slice(0, dice.pick([2, 3, 30]))
    const query = { ...page(dice), q: dice.pick([q, `@${q}`, q.toUpperCase(), "zz"]) }
    const sought = dice.pick([query, { ...query, q: undefined, tag: "tag" }, { ...query, tag: "tag" }])
    return dice.coin() ? { query: sought } : { query: sought, as: friend(world, dice) }
  },
  "POST /v1/contacts": (world, dice) => ({ as: world.stranger, body: { handle: written(dice, friend(world, dice)) } }),
  "GET /v1/contacts": listed("/v1/contacts"),
  "GET /v1/contacts/blocks": (world, dice) => pageOf(world.loners.blocker, "/v1/contacts/blocks", dice),
  "GET /v1/contacts/{handle}": (world, dice) => ({
    as: friend(world, dice),
    path: { handle: friend(world, dice).handle }
  }),
  "PATCH /v1/contacts/{handle}": (world, dice) => {
    const [one, other] = dice.pick(world.conversations)
    return { as: one, path: { handle: written(dice, other).trim() } }
  },
  "DELETE /v1/contacts/{handle}": contactOfMover,
  "POST /v1/contacts/{handle}/block": (world, dice) => ({
    as: world.loners.blocker,
    path: { handle: written(dice, world.loners.blocked).trim() }
  }),
  "DELETE /v1/contacts/{handle}/block": async (world) => {
    granted(await world.loners.mover.http.post(`/v1/contacts/${world.loners.blocked.handle}/block`))
    return { as: world.loners.mover, path: { handle: world.loners.blocked.handle } }
  },
  "POST /v1/contacts/{handle}/report": async (world) => {
    const [reporter, target] = await world.reportable()
    return { as: reporter, path: { handle: target.handle } }
  },
  "POST /v1/messages": (world, dice) => {
    const [one, other] = dice.pick(world.conversations)
    const direct = dice.coin()
    const attachment_id = dice.coin() ? undefined : direct ? world.file.id : world.groupFile
    const [from, to] = attachment_id === undefined ? [one, other] : [world.file.from, world.file.to]
    return {
      as: from,
      body: {
        to: direct ? written(dice, to) : undefined,
        conversation_id: direct ? undefined : world.group,
        content: (generated) => ({
          ...(generated as object),
          ...dice.pick<object>([{ text: "some words" }, { data: { some: ["data"] } }]),
          attachment_id
        })
      }
    }
  },
  "GET /v1/messages/{id}": (world, dice) => {
    const [one, , id, message] = dice.pick(world.conversations)
    const at = dice.pick(["before_seq", "after_seq", "around_message_id", "thread", "none"])
    const isMessage = at === "around_message_id" || at === "thread"
    const none = { before_seq: undefined, after_seq: undefined, around_message_id: undefined, thread: undefined }
    const query = {
      ...none,
      limit: dice.pick([undefined, "1", "200", "1000"]),
      [at]: isMessage ? message : dice.pick(["1", "0", "2", "null"])
    }
    return dice.coin() || isMessage
      ? { as: one, path: { id }, query }
      : { as: friend(world, dice), path: { id: world.group }, query }
  },
  "GET /v1/messages/search": (world, dice) => ({
    as: friend(world, dice),
    query: {
      q: dice.pick(["hello", "a few words", "wor*", "ÉTÉ 東京"]),
      limit: dice.pick([undefined, "1", "9999"]),
      from: dice.pick([undefined, "@Unknown-One"]),
      before: dice.pick([undefined, "2026-01-01T00:00:00Z"])
    }
  }),
  "GET /v1/messages/sync": async (world, dice) => {
    const agent = friend(world, dice)
    return {
      as: agent,
      query: {
        limit: dice.pick([undefined, "1", "3", "9999"]),
        after: dice.coin() ? undefined : (await inbox(agent))[0]?.delivery_id
      }
    }
  },
  "POST /v1/messages/sync/ack": async (world, dice) => {
    const agent = friend(world, dice)
    const last = (await inbox(agent))[0]?.delivery_id
    return { as: agent, body: { last_delivery_id: last ?? "del_0123456789abcdef0123456789abcdef" } }
  },
  "POST /v1/messages/{id}/read": (world, dice) => {
    const [, other, , message] = dice.pick(world.conversations)
    // A final outcome that is reported again is granted, and another one is not.
    const body = dice.coin() ? { outcome: "done" } : { outcome: undefined, reason: undefined }
    return dice.coin()
      ? { as: other, path: { id: message }, body }
      : { as: must(world.friends[dice.pick([0, 2, 3])]), path: { id: world.groupMessage }, body }
  },
  "GET /v1/messages/{id}/outcomes": (world, dice) => {
    const [one, , , message] = dice.pick(world.conversations)
    return { as: one, path: { id: message } }
  },
  "PUT /v1/messages/{id}/reactions/{emoji}": (world, dice) => reaction(world, dice),
  "DELETE /v1/messages/{id}/reactions/{emoji}": (world, dice) => reaction(world, dice),
  "DELETE /v1/messages/{id}": async ({ loners: { guest, mover } }, dice) => ({
    as: dice.pick([mover, guest]),
    path: { id: (await say(mover, guest)).id }
  }),
  "GET /v1/conversations": listed("/v1/conversations"),
  "GET /v1/conversations/{id}/context": conversation,
  "GET /v1/conversations/{id}/participants": conversation,
  "DELETE /v1/conversations/{id}": (world, dice) => ({
    as: dice.pick([world.loners.mover, world.loners.guest]),
    path: { id: world.hideable }
  }),
  "POST /v1/mutes": (world, dice) => {
    const [one, other, id] = dice.pick(world.conversations)
    const muted_until = dice.pick([undefined, null, "2999-01-01T00:00:00.000Z", "2999-01-01T00:00:00+02:00"])
    const agent = dice.pick<object>([{ target_handle: written(dice, other) }, { target_id: other.id }])
    return {
      as: one,
      body: {
        target_handle: undefined,
        target_id: undefined,
        muted_until,
        ...(dice.coin() ? { target_kind: "agent", ...agent } : { target_kind: "conversation", target_id: id })
      }
    }
  },
  "GET /v1/mutes": (world, dice) => ({
    as: friend(world, dice),
    query: { ...page(dice), kind: dice.pick([undefined, "agent", "conversation"]) }
  }),
  "GET /v1/mutes/agent/{handle}": muted(({ conversations }, dice) => {
    const [one, other] = dice.pick(conversations)
    return [one, other]
  }),
  "DELETE /v1/mutes/agent/{handle}": muted(({ loners: { guest, mover } }) => [mover, guest]),
  "GET /v1/mutes/conversation/{id}": (world, dice) => {
    const [one, , id] = dice.pick(world.conversations)
    return mutedConversation(one, id)
  },
  "DELETE /v1/mutes/conversation/{id}": (world) => mutedConversation(world.loners.mover, world.hideable),
  "POST /v1/groups": (world, dice) => ({
    as: world.loners.mover,
    body: {
      name: named,
      avatar_url: avatarUrl(dice),
      member_handles: dice.pick([undefined, [], world.friends.map((one) => one.handle), ["nobody-at-all"]])
    }
  }),
  "GET /v1/groups/invites": (world) => ({ as: world.loners.guest }),
  "POST /v1/groups/invites/{id}/accept": invited,
  "DELETE /v1/groups/invites/{id}": invited,
  "GET /v1/groups/{id}": (world, dice) => ({ as: friend(world, dice), path: { id: world.group } }),
  "PATCH /v1/groups/{id}": (world, dice) => ({ ...admin(world), body: { name: named, avatar_url: avatarUrl(dice) } }),
  "DELETE /v1/groups/{id}": async ({ loners: { guest, mover } }) => ({
    as: mover,
    path: { id: (await groupWith(mover, [guest])).id }
  }),
  "PUT /v1/groups/{id}/avatar": (world, dice) => ({ ...admin(world), raw: dice.pick(world.pictures) }),
  "DELETE /v1/groups/{id}/avatar": async (world) => {
    const host = world.loners.mover
    const { id } = await groupWith(host, [])
    granted(await host.http.request("PUT", `/v1/groups/${id}/avatar`, { raw: must(world.pictures[0]) }))
    return { as: host, path: { id } }
  },
  "POST /v1/groups/{id}/members": (world, dice) => ({
    ...admin(world),
    body: { handle: dice.pick([friend(world, dice), world.loners.guest, world.stranger]).handle }
  }),
  "DELETE /v1/groups/{id}/members/{handle}": withMember,
  "POST /v1/groups/{id}/members/{handle}/promote": withMember,
  "POST /v1/groups/{id}/members/{handle}/demote": async (world, dice) => {
    const call = await withMember(world, dice)
    granted(await must(call.as).http.post(`/v1/groups/${call.path?.["id"]}/members/${call.path?.["handle"]}/promote`))
    return call
  },
  "POST /v1/groups/{id}/leave": async (world, dice) => {
    const call = await withMember(world, dice)
    return dice.coin() ? call : { ...call, as: world.loners.guest }
  },
  "GET /v1/groups/{id}/invites": (world, dice) => ({ ...admin(world), query: page(dice) }),
  "DELETE /v1/groups/{id}/invites/{invite_id}": async ({ loners: { guest, mover } }) => {
    const { id, invites } = await groupWith(mover, [guest])
    return { as: mover, path: { id, invite_id: must(invites[0]) } }
  },
  "GET /v1/presence/{handle}": (world, dice) => {
    const [one, other] = dice.pick(world.conversations)
    return { as: one, path: { handle: dice.pick([one, other]).handle } }
  },
  "PUT /v1/presence": (world, dice) => ({ as: friend(world, dice) }),
  "POST /v1/presence/batch": (world, dice) => ({
    as: friend(world, dice),
    body: {
      handles: dice.pick([world.friends.map((one) => one.handle), ["nobody-at-all"], [
        `@${friend(world, dice).handle}`
      ]])
    }
  }),
  "POST /v1/uploads": (world, dice) => {
    const agent = friend(world, dice)
    const direct = dice.coin()
    return {
      as: agent,
      body: {
        to: direct ? otherThan(world, dice, agent).handle : undefined,
        conversation_id: direct ? undefined : world.group,
        sha256: (generated: unknown) => createHash("sha256").update(String(generated)).digest("hex")
      }
    }
  },
  "GET /v1/attachments/{id}": someFile,
  "GET /v1/attachments/{id}/info": someFile,
  "PUT /v1/reply/active": (world, dice) => ({
    as: friend(world, dice),
    body: { session_id: dice.pick([undefined, null, "one", "two"]) }
  }),
  "DELETE /v1/reply/active": (world, dice) => ({
    as: friend(world, dice),
    body: { session_id: dice.pick([undefined, null, "one", "two"]) }
  }),
  "GET /v1/reply/active": (world, dice) => ({ as: friend(world, dice) }),
  "POST /v1/reply/claim": (world, dice) => {
    const [, other, , message] = dice.pick(world.conversations)
    return { as: other, body: { message_id: message, holder: dice.pick(["daemon:1", "session:1"]) } }
  },
  "POST /v1/reply/claim-batch": (world, dice) => {
    const [, other, , message] = dice.pick(world.conversations)
    const message_ids = dice.pick([[message], [message, message], [world.groupMessage, message], ["msg_nobody"]])
    return { as: other, body: { message_ids, holder: dice.pick(["daemon:1", "session:1"]) } }
  },
  "GET /v1/connections": (world, dice) => ({ as: friend(world, dice) }),
  "DELETE /v1/connections/{id}": async (world) => ({
    as: world.loners.mover,
    path: { id: await connected(world.server, world.loners.mover) }
  }),
  "POST /v1/webhooks": async (world) => ({
    as: await world.fresh(),
    body: { url: `${NOWHERE}/a?b=c` }
  }),
  // A new agent each time, because an agent has ten challenges a minute.
  "PUT /v1/agents/me/wake-webhook": async (world) => ({ as: await world.fresh(), body: { url: world.receiver.url() } }),
  "DELETE /v1/agents/me/wake-webhook": (world, dice) => ({ as: friend(world, dice) }),
  "GET /v1/webhooks": listed("/v1/webhooks"),
  "GET /v1/webhooks/{id}": (world) => ({ as: must(world.friends[0]), path: { id: world.webhook } }),
  "DELETE /v1/webhooks/{id}": async (world) => ({ as: world.loners.mover, path: { id: await hooked(world.loners) } }),
  "GET /": () => ({}),
  "GET /v1/health": () => ({}),
  "GET /v1/ready": () => ({}),
  "GET /internal/metrics": () => ({}),
  "GET /v1/ws": (world, dice) => dice.coin() ? {} : { as: friend(world, dice) }
}
