import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import * as published from "agentchatme"
import {
  AgentChatClient,
  AgentChatError,
  AwaitingReplyError,
  BlockedError,
  ConnectionError,
  ForbiddenError,
  GroupDeletedError,
  NotFoundError,
  RateLimitedError,
  RealtimeClient,
  type RealtimeOptions,
  RecipientBackloggedError,
  ServerError,
  SuspendedError,
  UnauthorizedError,
  ValidationError,
  WebhookVerificationError,
  type WsMessage
} from "agentchatme"
import { Schema } from "effect"
import { createHash } from "node:crypto"
import { mkdtemp, readFile, rename, rm, writeFile } from "node:fs/promises"
import { createServer, type IncomingHttpHeaders } from "node:http"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { Client as Database } from "pg"
import sharp from "sharp"
import { freshDatabase } from "../support/Databases.ts"
import { eventually } from "../support/Eventually.ts"
import { matching } from "../support/Http.ts"
import { freshHandle, newAgent, type Server, startServer, type TestAgent } from "../support/Server.ts"
import { Socket } from "../support/Socket.ts"
import * as Shapes from "./Shapes.ts"
import { catchUp, contextOf, history, idsOf, inbox, newPair, type Pair, say, words } from "./Talk.ts"

let server: Server
let database: string
let outside: string
let hooks: string
/** A client whose key nobody has. */
let intruder: AgentChatClient
let picture: Uint8Array<ArrayBuffer>

const received: Array<{ readonly path: string; readonly headers: IncomingHttpHeaders; readonly body: string }> = []
const receiver = createServer((request, response) => {
  let body = ""
  request.setEncoding("utf8").on("data", (part: string) => body += part).on("end", () => {
    received.push({ path: request.url ?? "", headers: request.headers, body })
    response.end()
  })
})

beforeAll(async () => {
  await new Promise<void>((resolve) => receiver.listen(0, "127.0.0.1", resolve))
  const address = receiver.address()
  hooks = `http://127.0.0.1:${typeof address === "object" && address !== null ? address.port : 0}`
  outside = await mkdtemp(join(tmpdir(), "parley-outbox-"))
  // On PostgreSQL, so that a test can suspend an agent while it runs.
  database = await freshDatabase(18)
  server = await startServer({
    env: {
      DATABASE_URL: database,
      MAIL_OUTBOX: join(outside, "outbox"),
      WEBHOOK_ALLOW_PRIVATE: "loopback",
      LIMITS_BACKLOG_SOFT: "3",
      LIMITS_BACKLOG_HARD: "4",
      LIMITS_AVATAR_WRITES_PER_MINUTE: "3"
    }
  })
  intruder = new AgentChatClient({ apiKey: `ac_${"A".repeat(43)}`, baseUrl: server.url })
  const drawn = await sharp({ create: { width: 200, height: 200, channels: 3, background: "#4080c0" } }).png()
    .toBuffer()
  picture = new Uint8Array(drawn)
})

afterAll(async () => {
  await server?.stop()
  await rm(outside, { recursive: true, force: true })
  receiver.closeAllConnections()
  receiver.close()
})

const once = <A>(make: () => Promise<A>): () => Promise<A> => {
  let made: Promise<A> | undefined
  return () => made ??= make()
}

/** Two agents in an established conversation, and what else a method needs, made when it is first asked for. */
class Stage {
  readonly alice: TestAgent
  readonly bob: TestAgent
  readonly conversation: string
  /** From alice, seq 1. */
  readonly first: Shapes.Message
  /** From bob, seq 2, and not read. */
  readonly reply: Shapes.Message

  constructor({ alice, bob, conversation, first, reply }: Pair) {
    this.alice = alice
    this.bob = bob
    this.conversation = conversation
    this.first = first
    this.reply = reply
  }

  readonly carol = once(() => newAgent(server, "carol"))

  /** A group of alice, its creator, and bob. */
  readonly band = once(async () => {
    const made = await this.alice.client.createGroup({ name: "The band", member_handles: [this.bob.handle] })
    await this.bob.client.acceptGroupInvite(made.add_results[0]?.invite_id ?? "")
    await catchUp(this.alice)
    return made.group.id
  })

  /** An invite of carol's to the band. */
  readonly invite = once(async () => {
    const { handle } = await this.carol()
    return (await this.alice.client.addGroupMember(await this.band(), handle)).invite_id ?? ""
  })

  readonly webhook = once(() =>
    this.alice.client.createWebhook({ url: `${hooks}/${this.alice.handle}`, events: ["message.new"] })
  )

  /** A file from alice for bob, its bytes in place. */
  readonly file = once(async () => {
    const reserved = await this.alice.client.createUpload({ to: this.bob.handle, ...announced })
    await put(reserved.upload_url)
    return reserved.attachment_id
  })
}

const bytes = new TextEncoder().encode("a file")
const announced = {
  filename: "file.txt",
  content_type: "text/plain",
  size: bytes.length,
  sha256: createHash("sha256").update(bytes).digest("hex")
} as const

const put = async (url: string): Promise<void> => {
  assert.strictEqual((await fetch(url, { method: "PUT", body: bytes })).status, 200)
}

const collected = async <A>(items: AsyncIterable<A>): Promise<ReadonlyArray<A>> => {
  const all: Array<A> = []
  for await (const item of items) all.push(item)
  return all
}

const refusalOf = (promise: Promise<unknown>): Promise<unknown> =>
  promise.then((value) => assert.fail(`it was accepted: ${JSON.stringify(value)}`), (error: unknown) => error)

/** Whether bob's messages reach alice's sockets. */
const hears = async ({ alice, bob }: Stage): Promise<boolean> => {
  const socket = await Socket.hello(server, alice.key)
  const sent = await say(bob, alice)
  assert.include(idsOf(await inbox(alice)), sent.id)
  // Not muted, and from somebody else: what came before it has come.
  await socket.message((await say(await newAgent(server, "marker"), alice)).id)
  const heard = socket.pushed().includes(sent.id)
  await socket.close()
  await catchUp(alice)
  return heard
}

type ErrorClass = abstract new(...args: never) => AgentChatError

const assertRefused = async (promise: Promise<unknown>, as: readonly [ErrorClass, number, string]): Promise<void> => {
  const error = await refusalOf(promise)
  const [type, status, code] = as
  if (!(error instanceof AgentChatError)) return assert.fail(`not an error of the client's: ${String(error)}`)
  assert.deepStrictEqual([error.constructor, error.status, error.code], [type, status, code])
  assert.match(error.requestId ?? "", /^[!-~]{1,128}$/)
}

/** A published type as a strict shape's type says it. */
type Frozen<T> = T extends AgentChatClient ? T
  : T extends ReadonlyArray<infer E> ? ReadonlyArray<Frozen<E>>
  : T extends object ? { readonly [K in keyof T]: Frozen<T[K]> }
  : T

type Returned<F> = F extends (...args: never) => infer R
  ? R extends AsyncGenerator<infer T> ? ReadonlyArray<T> : Awaited<R>
  : never

interface Row<R> {
  readonly works: (stage: Stage) => Promise<R>
  /** What really comes back, without a field more; the compiler sees that it is what the client publishes. */
  readonly shape: Schema.ConstraintDecoder<[R] extends [void] ? unknown : Frozen<R>>
  /** The effect, by another agent. */
  readonly seen: "it only reads" | "nobody sees it yet" | ((stage: Stage, result: R) => Promise<void>)
  /** After all that. */
  readonly fails: (stage: Stage) => Promise<unknown>
  readonly as: readonly [ErrorClass, number, string]
}

interface Check {
  readonly name: string
  readonly run: () => Promise<void>
}

/** Counts the calls of a method for as long as `during` takes. */
const calls = async (owner: object, name: string, during: () => Promise<void>): Promise<number> => {
  const original: unknown = Reflect.get(owner, name)
  if (typeof original !== "function") return assert.fail(`${name} is no method`)
  let count = 0
  Object.defineProperty(owner, name, {
    configurable: true,
    writable: true,
    value(this: unknown, ...args: ReadonlyArray<unknown>): unknown {
      count++
      return Reflect.apply(original, this, args)
    }
  })
  try {
    await during()
  } finally {
    Object.defineProperty(owner, name, { configurable: true, writable: true, value: original })
  }
  return count
}

const check = <R>(owner: object, name: string, row: Row<R>): Check => ({
  name,
  run: async () => {
    const stage = new Stage(await newPair(server))
    const worked = await calls(owner, name, async () => {
      const result = await row.works(stage)
      matching(row.shape, result)
      if (typeof row.seen !== "string") await row.seen(stage, result)
    })
    const failed = await calls(owner, name, () => assertRefused(row.fails(stage), row.as))
    assert.isAbove(worked, 0, "it was called with success")
    assert.isAbove(failed, 0, "it was called without success")
  }
})

const method = <K extends keyof AgentChatClient>(name: K, row: Row<Returned<AgentChatClient[K]>>): Check =>
  check(AgentChatClient.prototype, name, row)

type Static = Exclude<keyof typeof AgentChatClient, "prototype">

const staticMethod = <K extends Static>(name: K, row: Row<Returned<(typeof AgentChatClient)[K]>>): Check =>
  check(AgentChatClient, name, row)

const unauthorized = [UnauthorizedError, 401, "UNAUTHORIZED"] as const
const forbidden = [ForbiddenError, 403, "FORBIDDEN"] as const
const invalid = [ValidationError, 400, "VALIDATION_ERROR"] as const
const notFound = [NotFoundError, 404, "NOT_FOUND"] as const
const noConversation = [NotFoundError, 404, "CONVERSATION_NOT_FOUND"] as const
const noGroup = [NotFoundError, 404, "GROUP_NOT_FOUND"] as const
const notMember = [NotFoundError, 404, "NOT_MEMBER"] as const
const noInvite = [NotFoundError, 404, "INVITE_NOT_FOUND"] as const
const expired = [AgentChatError, 400, "EXPIRED"] as const

const begin = async () => {
  const handle = freshHandle("begun")
  const email = `${handle}@example.com`
  return { handle, email, begun: await AgentChatClient.register({ email, handle, baseUrl: server.url }) }
}

const statics: ReadonlyArray<Check> = [
  staticMethod("register", {
    works: async () => (await begin()).begun,
    shape: Shapes.Registered,
    seen: "nobody sees it yet",
    fails: ({ bob }) =>
      AgentChatClient.register({ email: "taken@example.com", handle: bob.handle, baseUrl: server.url }),
    as: [AgentChatError, 409, "HANDLE_TAKEN"]
  }),
  staticMethod("verify", {
    works: async () => {
      const { begun, email } = await begin()
      return AgentChatClient.verify(begun.pending_id, await server.code(email), { baseUrl: server.url })
    },
    shape: Schema.Struct({ agent: Shapes.Agent, apiKey: Shapes.ApiKey, client: Schema.instanceOf(AgentChatClient) }),
    seen: async ({ bob }, { agent, client }) => {
      const { handle } = await client.getMe()
      assert.strictEqual((await bob.client.getAgent(handle)).handle, agent["handle"])
    },
    fails: () => AgentChatClient.verify("pnd_AAAAAAAAAAAAAAAA", "123456", { baseUrl: server.url }),
    as: expired
  }),
  staticMethod("recover", {
    works: ({ alice }) => AgentChatClient.recover(alice.email, { baseUrl: server.url }),
    shape: Shapes.Pending,
    seen: async ({ alice }) => assert.match(await server.code(alice.email), /^\d{6}$/),
    fails: () => AgentChatClient.recover("nobody", { baseUrl: server.url }),
    as: invalid
  }),
  staticMethod("recoverVerify", {
    works: async ({ alice }) => {
      const { pending_id } = await AgentChatClient.recover(alice.email, { baseUrl: server.url })
      return AgentChatClient.recoverVerify(pending_id ?? "", await server.code(alice.email), { baseUrl: server.url })
    },
    shape: Schema.Struct({ handle: Shapes.Handle, apiKey: Shapes.ApiKey, client: Schema.instanceOf(AgentChatClient) }),
    seen: async ({ alice, bob }, { client }) => {
      await assertRefused(alice.client.getMe(), unauthorized)
      const { message } = await client.sendMessage({ to: bob.handle, content: { text: words() } })
      assert.deepStrictEqual((await inbox(bob)).map(({ id, sender }) => [id, sender]), [[message.id, alice.handle]])
    },
    fails: () => AgentChatClient.recoverVerify("pnd_AAAAAAAAAAAAAAAA", "123456", { baseUrl: server.url }),
    as: expired
  })
]

const methods: ReadonlyArray<Check> = [
  method("getMe", {
    works: ({ alice }) => alice.client.getMe(),
    shape: Shapes.Agent,
    seen: "it only reads",
    fails: () => intruder.getMe(),
    as: unauthorized
  }),
  method("getAgent", {
    works: ({ alice, bob }) => alice.client.getAgent(`@${bob.handle.toUpperCase()}`),
    shape: Shapes.Card,
    seen: "it only reads",
    fails: ({ alice }) => alice.client.getAgent("nobody-here"),
    as: [NotFoundError, 404, "AGENT_NOT_FOUND"]
  }),
  method("updateAgent", {
    works: ({ alice }) => alice.client.updateAgent(alice.handle, { display_name: "Ada", description: "counts" }),
    shape: Shapes.Agent,
    seen: async ({ alice, bob }) => {
      assert.deepInclude(await bob.client.getAgent(alice.handle), { display_name: "Ada", description: "counts" })
    },
    fails: ({ alice, bob }) => bob.client.updateAgent(alice.handle, { display_name: "Not Ada" }),
    as: forbidden
  }),
  method("deleteAgent", {
    works: ({ alice }) => alice.client.deleteAgent(alice.handle),
    shape: Shapes.Confirmation,
    seen: ({ alice, bob }) => assertRefused(bob.client.getAgent(alice.handle), [NotFoundError, 404, "AGENT_NOT_FOUND"]),
    fails: async ({ bob, carol }) => bob.client.deleteAgent((await carol()).handle),
    as: forbidden
  }),
  method("rotateKey", {
    works: ({ alice }) => alice.client.rotateKey(alice.handle),
    shape: Shapes.Pending,
    seen: async ({ alice }) => assert.match(await server.code(alice.email), /^\d{6}$/),
    fails: ({ alice, bob }) => bob.client.rotateKey(alice.handle),
    as: forbidden
  }),
  method("rotateKeyVerify", {
    works: async ({ alice }) => {
      const { pending_id } = await alice.client.rotateKey(alice.handle)
      return alice.client.rotateKeyVerify(alice.handle, pending_id, await server.code(alice.email))
    },
    shape: Shapes.NewKey,
    seen: async ({ alice, bob }, { api_key }) => {
      await assertRefused(alice.client.getMe(), unauthorized)
      const renewed = new AgentChatClient({ apiKey: api_key, baseUrl: server.url })
      const { message } = await renewed.sendMessage({ to: bob.handle, content: { text: words() } })
      assert.deepStrictEqual((await inbox(bob)).map(({ id, sender }) => [id, sender]), [[message.id, alice.handle]])
    },
    fails: ({ bob }) => bob.client.rotateKeyVerify(bob.handle, "pnd_AAAAAAAAAAAAAAAA", "123456"),
    as: expired
  }),
  method("setAvatar", {
    works: ({ alice }) => alice.client.setAvatar(alice.handle, picture),
    shape: Shapes.AvatarAnswer,
    seen: async ({ alice, bob }, { avatar_url }) => {
      assert.strictEqual((await bob.client.getAgent(alice.handle)).avatar_url, avatar_url)
      assert.strictEqual((await fetch(avatar_url)).headers.get("content-type"), "image/webp")
    },
    fails: ({ alice }) => alice.client.setAvatar(alice.handle, bytes),
    as: [AgentChatError, 400, "UNSUPPORTED_FORMAT"]
  }),
  method("removeAvatar", {
    works: async ({ alice }) => {
      await alice.client.setAvatar(alice.handle, picture)
      return alice.client.removeAvatar(alice.handle)
    },
    shape: Shapes.Confirmation,
    seen: async ({ alice, bob }) => assert.isNull((await bob.client.getAgent(alice.handle)).avatar_url),
    fails: ({ alice }) => alice.client.removeAvatar(alice.handle),
    as: notFound
  }),
  method("sendMessage", {
    works: async ({ alice, carol }) =>
      alice.client.sendMessage({ to: (await carol()).handle, content: { text: words() }, metadata: { a: 1 } }),
    shape: Schema.Struct({ message: Shapes.Message, backlogWarning: Schema.Null }),
    seen: async ({ carol }, { message }) => assert.deepStrictEqual(idsOf(await inbox(await carol())), [message.id]),
    fails: async ({ alice, carol }) =>
      alice.client.sendMessage({ to: (await carol()).handle, content: { text: words() } }),
    as: [AwaitingReplyError, 403, "AWAITING_REPLY"]
  }),
  method("getMessages", {
    works: async ({ alice, conversation, first, reply }) => {
      const around = await alice.client.getMessages(conversation, { aroundMessageId: first.id, limit: 1 })
      const before = await alice.client.getMessages(conversation, { beforeSeq: 2 })
      const after = await alice.client.getMessages(conversation, { afterSeq: 0, limit: 1 })
      assert.deepStrictEqual([around, before, after].map(idsOf), [[first.id], [first.id], [first.id]])
      const all = await alice.client.getMessages(conversation)
      assert.deepStrictEqual(idsOf(all), [reply.id, first.id])
      return all
    },
    shape: Shapes.Messages,
    seen: "it only reads",
    fails: async ({ carol, conversation }) => (await carol()).client.getMessages(conversation),
    as: noConversation
  }),
  method("markAsRead", {
    works: ({ alice, reply }) => alice.client.markAsRead(reply.id),
    shape: Shapes.ReadMessage,
    seen: async ({ bob, conversation }) => assert.strictEqual((await history(bob, conversation))[0]?.status, "read"),
    fails: ({ bob, reply }) => bob.client.markAsRead(reply.id),
    as: forbidden
  }),
  method("deleteMessage", {
    works: ({ alice, reply }) => alice.client.deleteMessage(reply.id),
    shape: Shapes.Confirmation,
    seen: async ({ alice, bob, conversation, first, reply }) => {
      assert.deepStrictEqual(idsOf(await history(alice, conversation)), [first.id])
      assert.deepStrictEqual(idsOf(await history(bob, conversation)), [reply.id, first.id])
    },
    fails: async ({ carol, reply }) => (await carol()).client.deleteMessage(reply.id),
    as: [NotFoundError, 404, "MESSAGE_NOT_FOUND"]
  }),
  method("getConversationParticipants", {
    works: async ({ alice, band, bob, conversation }) => {
      assert.deepStrictEqual(
        (await alice.client.getConversationParticipants(conversation)).map(({ handle }) => handle),
        [
          bob.handle
        ]
      )
      const all = await alice.client.getConversationParticipants(await band())
      assert.sameMembers(all.map(({ handle }) => handle), [alice.handle, bob.handle])
      return all
    },
    shape: Shapes.Participants,
    seen: "it only reads",
    fails: async ({ carol, conversation }) => (await carol()).client.getConversationParticipants(conversation),
    as: noConversation
  }),
  method("getConversationContext", {
    works: async ({ alice, band, conversation }) => {
      matching(Shapes.GroupContext, await alice.client.getConversationContext(await band()))
      return alice.client.getConversationContext(conversation)
    },
    shape: Schema.Union([Shapes.DirectContext, Shapes.GroupContext]),
    seen: "it only reads",
    fails: async ({ carol, conversation }) => (await carol()).client.getConversationContext(conversation),
    as: noConversation
  }),
  method("hideConversation", {
    works: ({ alice, conversation }) => alice.client.hideConversation(conversation),
    shape: Shapes.Hidden,
    seen: async ({ alice, bob, conversation }) => {
      assert.deepStrictEqual(await alice.client.listConversations(), [])
      assert.deepStrictEqual(idsOf(await bob.client.listConversations()), [conversation])
    },
    fails: async ({ carol, conversation }) => (await carol()).client.hideConversation(conversation),
    as: noConversation
  }),
  method("listConversations", {
    works: async ({ alice, band, conversation }) => {
      const group = await band()
      assert.deepStrictEqual(idsOf(await alice.client.listConversations({ limit: 1, offset: 1 })), [conversation])
      const all = await alice.client.listConversations()
      assert.deepStrictEqual(idsOf(all), [group, conversation])
      return all
    },
    shape: Schema.Array(Schema.Union([Shapes.Conversation, Shapes.GroupConversation])),
    seen: "it only reads",
    fails: ({ alice }) => alice.client.listConversations({ limit: 0 }),
    as: invalid
  }),
  method("createGroup", {
    works: ({ alice, bob }) =>
      alice.client.createGroup({ name: "The band", member_handles: [bob.handle, "nobody-here"] }),
    shape: Shapes.CreatedGroup,
    seen: async ({ bob }, { add_results, group }) => {
      assert.deepStrictEqual((await bob.client.listGroupInvites()).map((invite) => [invite.id, invite.group_id]), [
        [add_results[0]?.invite_id, group.id]
      ])
    },
    fails: ({ alice }) => alice.client.createGroup({ name: " " }),
    as: invalid
  }),
  method("getGroup", {
    works: async ({ band, bob }) => bob.client.getGroup(await band()),
    shape: Shapes.Group,
    seen: "it only reads",
    fails: async ({ band, carol }) => (await carol()).client.getGroup(await band()),
    as: noGroup
  }),
  method("updateGroup", {
    works: async ({ alice, band }) =>
      alice.client.updateGroup(await band(), { name: "The duo", description: "two of us" }),
    shape: Shapes.Group,
    seen: async ({ band, bob }) => {
      assert.deepInclude(await bob.client.getGroup(await band()), { name: "The duo", description: "two of us" })
    },
    fails: async ({ band, bob }) => bob.client.updateGroup(await band(), { name: "Mine" }),
    as: forbidden
  }),
  method("setGroupAvatar", {
    works: async ({ alice, band }) => alice.client.setGroupAvatar(await band(), picture),
    shape: Shapes.AvatarAnswer,
    seen: async ({ band, bob }, { avatar_url }) => {
      assert.strictEqual((await bob.client.getGroup(await band())).avatar_url, avatar_url)
      assert.strictEqual((await fetch(avatar_url)).headers.get("content-type"), "image/webp")
    },
    fails: async ({ band, bob }) => bob.client.setGroupAvatar(await band(), picture),
    as: forbidden
  }),
  method("removeGroupAvatar", {
    works: async ({ alice, band }) => {
      await alice.client.setGroupAvatar(await band(), picture)
      return alice.client.removeGroupAvatar(await band())
    },
    shape: Shapes.Confirmation,
    seen: async ({ band, bob }) => assert.isNull((await bob.client.getGroup(await band())).avatar_url),
    fails: async ({ alice, band }) => alice.client.removeGroupAvatar(await band()),
    as: notFound
  }),
  method("deleteGroup", {
    works: async ({ alice, band }) => alice.client.deleteGroup(await band()),
    shape: Shapes.DeletedGroup,
    seen: async ({ alice, band, bob }, { deleted_at }) => {
      const error = await refusalOf(bob.client.getGroup(await band()))
      if (!(error instanceof GroupDeletedError)) return assert.fail(String(error))
      assert.deepStrictEqual([error.groupId, error.deletedByHandle, error.deletedAt], [
        await band(),
        alice.handle,
        deleted_at
      ])
    },
    fails: async ({ alice, band }) => alice.client.deleteGroup(await band()),
    as: [GroupDeletedError, 410, "GROUP_DELETED"]
  }),
  method("addGroupMember", {
    works: async ({ alice, band, carol }) => alice.client.addGroupMember(await band(), (await carol()).handle),
    shape: Shapes.AddResult,
    seen: async ({ carol }, { invite_id }) => {
      assert.deepStrictEqual((await (await carol()).client.listGroupInvites()).map(({ id }) => id), [invite_id])
    },
    fails: async ({ alice, band }) => alice.client.addGroupMember(await band(), "nobody-here"),
    as: [NotFoundError, 404, "AGENT_NOT_FOUND"]
  }),
  method("removeGroupMember", {
    works: async ({ alice, band, bob }) => alice.client.removeGroupMember(await band(), bob.handle),
    shape: Shapes.Confirmation,
    seen: async ({ band, bob }) => assertRefused(bob.client.getGroup(await band()), noGroup),
    fails: async ({ alice, band, bob }) => alice.client.removeGroupMember(await band(), bob.handle),
    as: notMember
  }),
  method("promoteGroupMember", {
    works: async ({ alice, band, bob }) => alice.client.promoteGroupMember(await band(), bob.handle),
    shape: Shapes.Confirmation,
    seen: async ({ band, bob }) => assert.strictEqual((await bob.client.getGroup(await band())).your_role, "admin"),
    fails: async ({ alice, band, carol }) => alice.client.promoteGroupMember(await band(), (await carol()).handle),
    as: notMember
  }),
  method("demoteGroupMember", {
    works: async ({ alice, band, bob }) => {
      await alice.client.promoteGroupMember(await band(), bob.handle)
      return alice.client.demoteGroupMember(await band(), bob.handle)
    },
    shape: Shapes.Confirmation,
    seen: async ({ band, bob }) => assert.strictEqual((await bob.client.getGroup(await band())).your_role, "member"),
    fails: async ({ alice, band, bob }) => alice.client.demoteGroupMember(await band(), bob.handle),
    as: [AgentChatError, 400, "NOT_ADMIN"]
  }),
  method("leaveGroup", {
    works: async ({ alice, band }) => alice.client.leaveGroup(await band()),
    shape: Shapes.LeftGroup,
    seen: async ({ band, bob }, { promoted_handle }) => {
      assert.strictEqual(promoted_handle, bob.handle)
      assert.deepStrictEqual((await bob.client.getGroup(await band())).members.map(({ handle }) => handle), [
        bob.handle
      ])
    },
    fails: async ({ alice, band }) => alice.client.leaveGroup(await band()),
    as: noGroup
  }),
  method("listGroupInvites", {
    works: async ({ carol, invite }) => {
      const id = await invite()
      const invites = await (await carol()).client.listGroupInvites()
      assert.deepStrictEqual(idsOf(invites), [id])
      return invites
    },
    shape: Shapes.GroupInvites,
    seen: "it only reads",
    fails: () => intruder.listGroupInvites(),
    as: unauthorized
  }),
  method("acceptGroupInvite", {
    works: async ({ carol, invite }) => (await carol()).client.acceptGroupInvite(await invite()),
    shape: Shapes.Group,
    seen: async ({ alice, band, carol }) => {
      const { handle } = await carol()
      assert.include((await alice.client.getGroup(await band())).members.map((member) => member.handle), handle)
    },
    fails: async ({ carol, invite }) => (await carol()).client.acceptGroupInvite(await invite()),
    as: noInvite
  }),
  method("rejectGroupInvite", {
    works: async ({ carol, invite }) => (await carol()).client.rejectGroupInvite(await invite()),
    shape: Shapes.Confirmation,
    seen: async ({ alice, band }) => {
      const pending = await alice.http.get(`/v1/groups/${await band()}/invites`)
      assert.deepStrictEqual(pending.ok(200, Shapes.PendingInvites).invites, [])
    },
    fails: async ({ carol, invite }) => (await carol()).client.rejectGroupInvite(await invite()),
    as: noInvite
  }),
  method("addContact", {
    works: async ({ alice, carol }) => alice.client.addContact((await carol()).handle),
    shape: Shapes.Contact,
    // One-sided, and the other is not told: carol is visible to alice, not alice to carol.
    seen: async ({ alice, carol }) => {
      const other = await carol()
      assert.strictEqual((await alice.client.getPresence(other.handle)).handle, other.handle)
      await assertRefused(other.client.getPresence(alice.handle), notFound)
      assert.isFalse((await other.client.checkContact(alice.handle)).is_contact)
    },
    fails: ({ alice }) => alice.client.addContact(alice.handle),
    as: invalid
  }),
  method("listContacts", {
    works: async ({ alice, bob, carol }) => {
      await alice.client.addContact((await carol()).handle)
      const page = await alice.client.listContacts({ limit: 1, offset: 1 })
      assert.deepStrictEqual([page.total, page.limit, page.offset, page.contacts.length], [2, 1, 1, 1])
      const all = await alice.client.listContacts()
      assert.deepStrictEqual(all.contacts.map(({ handle }) => handle), [bob.handle, (await carol()).handle])
      return all
    },
    shape: Shapes.ContactPage,
    seen: "it only reads",
    fails: ({ alice }) => alice.client.listContacts({ limit: -1 }),
    as: invalid
  }),
  method("contacts", {
    works: async ({ alice, bob, carol }) => {
      await alice.client.addContact((await carol()).handle)
      assert.strictEqual((await collected(alice.client.contacts({ max: 1 }))).length, 1)
      const all = await collected(alice.client.contacts({ pageSize: 1 }))
      assert.deepStrictEqual(all.map(({ handle }) => handle), [bob.handle, (await carol()).handle])
      return all
    },
    shape: Schema.Array(Shapes.Contact),
    seen: "it only reads",
    fails: () => collected(intruder.contacts()),
    as: unauthorized
  }),
  method("checkContact", {
    works: async ({ alice, bob, carol }) => {
      assert.isFalse((await alice.client.checkContact((await carol()).handle)).is_contact)
      return alice.client.checkContact(bob.handle)
    },
    shape: Shapes.ContactCheck,
    seen: "it only reads",
    fails: ({ bob }) => intruder.checkContact(bob.handle),
    as: unauthorized
  }),
  method("updateContactNotes", {
    works: ({ alice, bob }) => alice.client.updateContactNotes(bob.handle, "met at the fair"),
    shape: Shapes.Confirmation,
    // A note is its writer's alone.
    seen: async ({ alice, bob, conversation }) => {
      assert.strictEqual((await contextOf(alice, conversation)).relationship.note, "met at the fair")
      assert.isNull((await contextOf(bob, conversation)).relationship.note)
    },
    fails: async ({ alice, carol }) => alice.client.updateContactNotes((await carol()).handle, "a stranger"),
    as: notFound
  }),
  method("removeContact", {
    works: ({ alice, bob }) => alice.client.removeContact(bob.handle),
    shape: Shapes.Confirmation,
    seen: async ({ alice, bob }) => {
      await assertRefused(alice.client.getPresence(bob.handle), notFound)
      assert.isTrue((await bob.client.checkContact(alice.handle)).is_contact)
    },
    fails: ({ alice, bob }) => alice.client.removeContact(bob.handle),
    as: notFound
  }),
  method("blockAgent", {
    works: ({ alice, bob }) => alice.client.blockAgent(bob.handle),
    shape: Shapes.Confirmation,
    seen: ({ alice, bob }) =>
      assertRefused(bob.client.sendMessage({ to: alice.handle, content: { text: words() } }), [
        BlockedError,
        403,
        "BLOCKED"
      ]),
    fails: ({ alice }) => alice.client.blockAgent(alice.handle),
    as: invalid
  }),
  method("unblockAgent", {
    works: async ({ alice, bob }) => {
      await alice.client.blockAgent(bob.handle)
      return alice.client.unblockAgent(bob.handle)
    },
    shape: Shapes.Confirmation,
    seen: async ({ alice, bob }) => {
      const sent = await say(bob, alice)
      assert.deepStrictEqual(idsOf(await inbox(alice)), [sent.id])
    },
    fails: ({ alice, bob }) => alice.client.unblockAgent(bob.handle),
    as: notFound
  }),
  method("reportAgent", {
    works: ({ alice, bob }) => alice.client.reportAgent(bob.handle, "spam"),
    shape: Shapes.Confirmation,
    seen: ({ alice, bob }) =>
      assertRefused(bob.client.sendMessage({ to: alice.handle, content: { text: words() } }), [
        BlockedError,
        403,
        "BLOCKED"
      ]),
    fails: ({ alice, bob }) => alice.client.reportAgent(bob.handle),
    as: [AgentChatError, 409, "ALREADY_REPORTED"]
  }),
  method("muteAgent", {
    works: ({ alice, bob }) => alice.client.muteAgent(bob.handle, { mutedUntil: "2999-01-01T00:00:00.000Z" }),
    shape: Shapes.Mute,
    seen: async (stage) => assert.isFalse(await hears(stage)),
    fails: ({ alice }) => alice.client.muteAgent(alice.handle),
    as: [AgentChatError, 400, "SELF_MUTE"]
  }),
  method("muteConversation", {
    works: ({ alice, conversation }) => alice.client.muteConversation(conversation),
    shape: Shapes.Mute,
    seen: async (stage) => assert.isFalse(await hears(stage)),
    fails: async ({ carol, conversation }) => (await carol()).client.muteConversation(conversation),
    as: noConversation
  }),
  method("unmuteAgent", {
    works: async ({ alice, bob }) => {
      await alice.client.muteAgent(bob.handle)
      return alice.client.unmuteAgent(bob.handle)
    },
    shape: Shapes.Confirmation,
    seen: async (stage) => assert.isTrue(await hears(stage)),
    fails: ({ alice, bob }) => alice.client.unmuteAgent(bob.handle),
    as: notFound
  }),
  method("unmuteConversation", {
    works: async ({ alice, conversation }) => {
      await alice.client.muteConversation(conversation)
      return alice.client.unmuteConversation(conversation)
    },
    shape: Shapes.Confirmation,
    seen: async (stage) => assert.isTrue(await hears(stage)),
    fails: ({ alice, conversation }) => alice.client.unmuteConversation(conversation),
    as: notFound
  }),
  method("listMutes", {
    works: async ({ alice, bob, conversation }) => {
      await alice.client.muteConversation(conversation)
      await alice.client.muteAgent(bob.handle)
      assert.deepStrictEqual(
        (await alice.client.listMutes({ kind: "agent" })).mutes.map(({ target_id }) => target_id),
        [bob.id]
      )
      const all = await alice.client.listMutes()
      assert.deepStrictEqual(all.mutes.map(({ target_id }) => target_id), [bob.id, conversation])
      return all
    },
    shape: Shapes.MutePage,
    seen: "it only reads",
    fails: () => intruder.listMutes(),
    as: unauthorized
  }),
  method("getAgentMuteStatus", {
    works: async ({ alice, bob }) => {
      assert.isNull(await alice.client.getAgentMuteStatus(bob.handle))
      await alice.client.muteAgent(bob.handle)
      // Who is muted is not told.
      assert.isNull(await bob.client.getAgentMuteStatus(alice.handle))
      return alice.client.getAgentMuteStatus(bob.handle)
    },
    shape: Shapes.Mute,
    seen: "it only reads",
    fails: ({ bob }) => intruder.getAgentMuteStatus(bob.handle),
    as: unauthorized
  }),
  method("getConversationMuteStatus", {
    works: async ({ alice, bob, conversation }) => {
      assert.isNull(await alice.client.getConversationMuteStatus(conversation))
      await alice.client.muteConversation(conversation)
      assert.isNull(await bob.client.getConversationMuteStatus(conversation))
      return alice.client.getConversationMuteStatus(conversation)
    },
    shape: Shapes.Mute,
    seen: "it only reads",
    fails: ({ conversation }) => intruder.getConversationMuteStatus(conversation),
    as: unauthorized
  }),
  method("getPresence", {
    works: ({ alice, bob }) => alice.client.getPresence(bob.handle),
    shape: Shapes.Presence,
    seen: "it only reads",
    fails: async ({ alice, carol }) => alice.client.getPresence((await carol()).handle),
    as: notFound
  }),
  method("updatePresence", {
    works: ({ alice }) => alice.client.updatePresence({ status: "busy", custom_message: "counting" }),
    shape: Shapes.Presence,
    seen: async ({ alice, bob }, presence) =>
      assert.deepStrictEqual(await bob.client.getPresence(alice.handle), presence),
    fails: ({ alice }) => alice.client.updatePresence({ status: "busy", custom_message: "x".repeat(201) }),
    as: invalid
  }),
  method("getPresenceBatch", {
    works: async ({ alice, bob, carol }) => {
      const seen = await alice.client.getPresenceBatch([
        (await carol()).handle,
        bob.handle,
        "nobody-here",
        alice.handle
      ])
      assert.deepStrictEqual(seen.presences.map(({ handle }) => handle), [bob.handle, alice.handle])
      return seen
    },
    shape: Shapes.Presences,
    seen: "it only reads",
    fails: ({ alice }) => alice.client.getPresenceBatch(Array.from({ length: 101 }, (_, i) => `agent-${i}`)),
    as: invalid
  }),
  method("searchAgents", {
    works: async ({ alice, bob }) => {
      const found = await alice.client.searchAgents(`@${bob.handle}`, { limit: 5 })
      assert.deepStrictEqual(found.agents.map(({ handle, in_contacts }) => [handle, in_contacts]), [[bob.handle, true]])
      return found
    },
    shape: Shapes.Directory,
    seen: "it only reads",
    fails: ({ alice }) => alice.client.searchAgents("a"),
    as: invalid
  }),
  method("searchAgentsAll", {
    works: async ({ alice }) => {
      const prefix = freshHandle("all")
      for (const end of ["a", "b", "c"]) await newAgent(server, `${prefix}${end}`)
      const found = await collected(alice.client.searchAgentsAll(prefix, { pageSize: 2 }))
      assert.deepStrictEqual(
        found.map(({ handle }) => handle.slice(0, prefix.length + 1)),
        ["a", "b", "c"].map((end) => prefix + end)
      )
      return found
    },
    shape: Shapes.Directory.fields.agents,
    seen: "it only reads",
    fails: ({ alice }) => collected(alice.client.searchAgentsAll("x".repeat(51))),
    as: invalid
  }),
  method("createWebhook", {
    works: ({ webhook }) => webhook(),
    shape: Shapes.CreatedWebhook,
    seen: async ({ alice, bob }) => {
      const sent = await say(bob, alice)
      const delivery = await eventually("a delivery", () => received.find(({ path }) => path === `/${alice.handle}`))
      assert.include(delivery.body, sent.id)
    },
    fails: ({ alice }) => alice.client.createWebhook({ url: `${hooks}/x`, events: [] }),
    as: invalid
  }),
  method("listWebhooks", {
    works: async ({ alice, bob, webhook }) => {
      const { id } = await webhook()
      assert.deepStrictEqual((await bob.client.listWebhooks()).webhooks, [])
      const all = await alice.client.listWebhooks()
      assert.deepStrictEqual(idsOf(all.webhooks), [id])
      return all
    },
    shape: Shapes.WebhookPage,
    seen: "it only reads",
    fails: () => intruder.listWebhooks(),
    as: unauthorized
  }),
  method("getWebhook", {
    works: async ({ alice, webhook }) => alice.client.getWebhook((await webhook()).id),
    shape: Shapes.Webhook,
    seen: "it only reads",
    fails: async ({ bob, webhook }) => bob.client.getWebhook((await webhook()).id),
    as: notFound
  }),
  method("deleteWebhook", {
    works: async ({ alice, webhook }) => alice.client.deleteWebhook((await webhook()).id),
    shape: Shapes.Confirmation,
    seen: async ({ alice, bob }) => {
      // A delivery would be under way by the time a second webhook's has arrived.
      await alice.client.createWebhook({ url: `${hooks}/${alice.handle}/second`, events: ["message.new"] })
      await say(bob, alice)
      await eventually("a delivery", () => received.find(({ path }) => path === `/${alice.handle}/second`))
      assert.notInclude(received.map(({ path }) => path), `/${alice.handle}`)
    },
    fails: async ({ alice, webhook }) => alice.client.deleteWebhook((await webhook()).id),
    as: notFound
  }),
  method("createUpload", {
    works: ({ alice, bob }) => alice.client.createUpload({ to: bob.handle, ...announced }),
    shape: Shapes.Upload,
    seen: async ({ alice, bob }, { attachment_id, upload_url }) => {
      await put(upload_url)
      await alice.client.sendMessage({ to: bob.handle, type: "file", content: { attachment_id } })
      const [row] = await bob.client.sync()
      assert.deepStrictEqual(row?.content, { attachment_id })
      assert.strictEqual(await (await fetch(await bob.client.getAttachmentDownloadUrl(attachment_id))).text(), "a file")
    },
    fails: ({ alice, bob }) => alice.client.createUpload({ to: bob.handle, ...announced, size: 0 }),
    as: invalid
  }),
  method("getAttachmentDownloadUrl", {
    works: async ({ bob, file }) => {
      const url = await bob.client.getAttachmentDownloadUrl(await file())
      assert.strictEqual(await (await fetch(url)).text(), "a file")
      return url
    },
    shape: Schema.String,
    seen: "it only reads",
    fails: async ({ carol, file }) => (await carol()).client.getAttachmentDownloadUrl(await file()),
    as: notFound
  }),
  method("sync", {
    works: async ({ alice, bob }) => {
      const sent = [await say(alice, bob), await say(alice, bob)]
      const [one] = await bob.client.sync({ limit: 1 })
      assert.deepStrictEqual((await bob.client.sync({ after: one?.delivery_id ?? "" })).map(({ id }) => id), [
        sent[1]?.id
      ])
      const rows = await bob.client.sync()
      assert.deepStrictEqual(idsOf(rows), idsOf(sent))
      return rows
    },
    shape: Shapes.SyncRows,
    seen: "it only reads",
    fails: () => intruder.sync(),
    as: unauthorized
  }),
  method("syncAck", {
    works: async ({ alice, bob }) => {
      await say(alice, bob)
      const [row] = await bob.client.sync()
      return bob.client.syncAck(row?.delivery_id ?? "")
    },
    shape: Schema.Struct({ acked: Schema.Literal(1) }),
    seen: async ({ alice, conversation }) => {
      assert.strictEqual((await history(alice, conversation))[0]?.status, "delivered")
    },
    fails: () => intruder.syncAck("del_00000000000000000000000000000000"),
    as: unauthorized
  })
]

/** What the published declarations keep private, which at run time is there like the rest. */
const privateOf = async (type: string): Promise<ReadonlySet<string>> => {
  const declarations = fileURLToPath(import.meta.resolve("agentchatme")).replace(/\.js$/, ".d.ts")
  const text = await readFile(declarations, "utf8")
  const body = text.match(new RegExp(`^declare class ${type} \\{$(.*?)^\\}$`, "ms"))?.[1]
  if (body === undefined) return assert.fail(`no class ${type} is declared`)
  return new Set(Array.from(body.matchAll(/^ {4}private (?:readonly )?(\w+)/gm), ([, name]) => name ?? ""))
}

const publicOf = async (name: string, prototype: object): Promise<ReadonlyArray<string>> => {
  const hidden = await privateOf(name)
  return Object.getOwnPropertyNames(prototype).filter((name) => name !== "constructor" && !hidden.has(name)).sort()
}

describe("the published client, method by method", () => {
  it("has no method that this test leaves out", async () => {
    assert.deepStrictEqual(
      methods.map(({ name }) => name).sort(),
      await publicOf("AgentChatClient", AgentChatClient.prototype)
    )
    const beside = new Set(["length", "name", "prototype"])
    assert.deepStrictEqual(
      statics.map(({ name }) => name).sort(),
      Object.getOwnPropertyNames(AgentChatClient).filter((name) => !beside.has(name)).sort()
    )
  })

  for (const { name, run } of [...statics, ...methods]) {
    it(`${name}: returns what is published, has its effect, and fails as documented`, run)
  }
})

/** The realtime client of an agent, and what it told. */
class Listener {
  readonly client: RealtimeClient
  readonly events: Array<WsMessage> = []
  readonly errors: Array<Error> = []
  connects = 0

  constructor(agent: TestAgent, options: Partial<RealtimeOptions> = {}) {
    this.client = agent.realtime({ reconnect: false, ...options })
    for (const type of ["message.new", "message.read", "presence.update", "typing.start", "typing.stop", "error"]) {
      this.client.on(type, (event) => void this.events.push(event))
    }
    this.client.onError((error) => this.errors.push(error))
    this.client.onConnect(() => void this.connects++)
  }

  async connect(): Promise<this> {
    await this.client.connect()
    await eventually("hello.ok", () => this.connects > 0 || undefined)
    return this
  }

  event(type: string, wants: (payload: WsMessage["payload"]) => boolean = () => true): Promise<WsMessage["payload"]> {
    return eventually(type, () => this.events.find((event) => event.type === type && wants(event.payload))?.payload)
  }
}

const isNotConnected = (act: () => void): void => assert.throws(act, ConnectionError, "not connected")

type RealtimeMember = keyof RealtimeClient

const realtime: { readonly [K in RealtimeMember]: (stage: Stage) => Promise<void> } = {
  connect: async ({ alice, bob }) => {
    const watching = await new Listener(bob).connect()
    const mine = new Listener(alice)
    assert.strictEqual(await mine.client.connect() satisfies void, undefined)
    assert.deepInclude(await watching.event("presence.update", ({ handle }) => handle === alice.handle), {
      status: "online"
    })
    mine.client.disconnect()
    const error = await refusalOf(mine.client.connect())
    assert.instanceOf(error, ConnectionError)
    watching.client.disconnect()
  },
  disconnect: async ({ alice, bob }) => {
    const [watching, mine] = [await new Listener(bob).connect(), await new Listener(alice).connect()]
    await watching.event("presence.update", ({ status }) => status === "online")
    assert.strictEqual(mine.client.disconnect() satisfies void, undefined)
    assert.deepInclude(await watching.event("presence.update", ({ status }) => status === "offline"), {
      handle: alice.handle
    })
    isNotConnected(() => mine.client.send({ type: "presence.update", payload: {} }))
    watching.client.disconnect()
  },
  isConnected: async ({ alice }) => {
    const mine = new Listener(alice)
    assert.isFalse(mine.client.isConnected satisfies boolean)
    await mine.connect()
    assert.isTrue(mine.client.isConnected)
    mine.client.disconnect()
    assert.isFalse(mine.client.isConnected)
  },
  drainOfflineEnvelopes: async ({ alice, bob, conversation }) => {
    const sent = await say(alice, bob)
    const theirs = new Listener(bob, { autoDrainOnConnect: false })
    assert.strictEqual(await theirs.client.drainOfflineEnvelopes() satisfies void, undefined)
    matching(Shapes.SyncRow, await theirs.event("message.new"))
    assert.strictEqual((await history(alice, conversation))[0]?.status, "delivered")
    assert.strictEqual((await history(alice, conversation))[0]?.id, sent.id)
    const refused = new Listener(bob, { client: intruder })
    await refused.client.drainOfflineEnvelopes()
    assert.instanceOf(refused.errors[0], UnauthorizedError)
  },
  on: async ({ alice, bob }) => {
    const theirs = await new Listener(bob).connect()
    const heard: Array<unknown> = []
    const stop = theirs.client.on("message.new", ({ payload }) => {
      heard.push(payload["id"])
      if (heard.length === 2) throw new Error("not this time")
    })
    const one = await say(alice, bob)
    await theirs.event("message.new", ({ id }) => id === one.id)
    const two = await say(alice, bob)
    // What a handler throws is told, and the message stays in the inbox.
    await eventually("its error", () => theirs.errors[0])
    // The first was acknowledged by a frame, which nobody answers.
    const waiting = await eventually("the first to be acknowledged", async () => {
      const ids = idsOf(await inbox(bob))
      return ids.includes(one.id) ? undefined : ids
    })
    assert.deepStrictEqual(waiting, [two.id])
    assert.strictEqual(stop() satisfies void, undefined)
    const three = await say(alice, bob)
    await theirs.event("message.new", ({ id }) => id === three.id)
    assert.deepStrictEqual(heard, [one.id, two.id])
    theirs.client.disconnect()
  },
  onConnect: async ({ alice }) => {
    const mine = new Listener(alice)
    let [heard, stopped] = [0, 0]
    mine.client.onConnect(() => void heard++)
    const stop = mine.client.onConnect(() => void stopped++)
    stop()
    await mine.connect()
    assert.deepStrictEqual([heard, stopped], [1, 0])
    mine.client.disconnect()
    const refused = new RealtimeClient({ apiKey: "ac_nobody", baseUrl: server.wsUrl, reconnect: false })
    let connected = false
    refused.onConnect(() => void (connected = true))
    const closed = new Promise<number>((resolve) => refused.onDisconnect(({ code }) => resolve(code)))
    await refused.connect()
    assert.deepStrictEqual([await closed, connected], [1008, false])
  },
  onDisconnect: async ({ alice, bob }) => {
    const mine = await new Listener(alice).connect()
    const told: Array<number> = []
    mine.client.onDisconnect(({ code, reason, wasClean }) => {
      assert.deepStrictEqual([typeof reason, wasClean], ["string", true])
      told.push(code)
    })
    let stopped = 0
    mine.client.onDisconnect(() => void stopped++)()
    await alice.client.deleteAgent(alice.handle)
    assert.strictEqual(await eventually("the close", () => told[0]), 1008)
    assert.strictEqual(stopped, 0)
    await assertRefused(bob.client.getAgent(alice.handle), [NotFoundError, 404, "AGENT_NOT_FOUND"])
  },
  onError: async ({ alice }) => {
    const refused = new RealtimeClient({ apiKey: "ac_nobody", baseUrl: server.wsUrl, reconnect: false })
    const told: Array<Error> = []
    refused.onError((error) => void told.push(error))
    let stopped = 0
    refused.onError(() => void stopped++)()
    await refused.connect()
    assert.match((await eventually("the error", () => told[0])).message, /terminal code 1008/)
    assert.instanceOf(told[0], ConnectionError)
    assert.strictEqual(stopped, 0)
    const mine = await new Listener(alice).connect()
    assert.deepStrictEqual(mine.errors, [], "with a good key there is none")
    mine.client.disconnect()
  },
  send: async ({ alice, bob }) => {
    const mine = new Listener(alice)
    isNotConnected(() => mine.client.send({ type: "presence.update", payload: { status: "busy" } }))
    await mine.connect()
    const watching = await new Listener(bob).connect()
    const frame = { type: "presence.update", payload: { status: "busy", custom_message: "hi" } } as const
    assert.strictEqual(mine.client.send(frame) satisfies void, undefined)
    const told = await watching.event("presence.update", ({ status }) => status === "busy")
    assert.deepInclude(matching(Shapes.Presence, told), { handle: alice.handle, custom_message: "hi" })
    mine.client.send({ type: "presence.update", payload: { status: "asleep" }, id: "bad" })
    assert.deepInclude(matching(Shapes.FrameError, await mine.event("error")), { code: "VALIDATION_ERROR" })
    for (const one of [mine, watching]) one.client.disconnect()
  },
  sendTypingStart: (stage) =>
    typing(stage, "typing.start", (client, conversation) => client.sendTypingStart(conversation)),
  sendTypingStop: (stage) =>
    typing(stage, "typing.stop", (client, conversation) => client.sendTypingStop(conversation)),
  sendReadAck: async ({ alice, bob, carol, conversation, reply }) => {
    const [mine, theirs] = [new Listener(alice), await new Listener(bob).connect()]
    isNotConnected(() => mine.client.sendReadAck(conversation, reply.seq))
    await mine.connect()
    assert.strictEqual(mine.client.sendReadAck(conversation, reply.seq) satisfies void, undefined)
    const receipt = matching(Shapes.Receipt, await theirs.event("message.read"))
    assert.deepInclude(receipt, { message_id: reply.id, read_by: alice.handle, through_seq: reply.seq })
    const outsider = await new Listener(await carol()).connect()
    outsider.client.sendReadAck(conversation, 1)
    assert.deepInclude(matching(Shapes.FrameError, await outsider.event("error")), { code: "CONVERSATION_NOT_FOUND" })
    for (const one of [mine, theirs, outsider]) one.client.disconnect()
  }
}

const typing = async (
  { alice, bob, carol, conversation }: Stage,
  type: "typing.start" | "typing.stop",
  act: (client: RealtimeClient, conversation: string) => void
): Promise<void> => {
  const [mine, theirs] = [new Listener(alice), await new Listener(bob).connect()]
  isNotConnected(() => act(mine.client, conversation))
  await mine.connect()
  act(mine.client, conversation)
  const told = matching(Shapes.Typing, await theirs.event(type))
  assert.deepStrictEqual(told, { conversation_id: conversation, sender: alice.handle })
  const outsider = await new Listener(await carol()).connect()
  act(outsider.client, conversation)
  assert.deepInclude(matching(Shapes.FrameError, await outsider.event("error")), { code: "CONVERSATION_NOT_FOUND" })
  for (const one of [mine, theirs, outsider]) one.client.disconnect()
}

describe("the published realtime client, member by member", () => {
  it("has no member that this test leaves out", async () => {
    assert.deepStrictEqual(Object.keys(realtime).sort(), await publicOf("RealtimeClient", RealtimeClient.prototype))
  })

  for (const [name, run] of Object.entries(realtime)) {
    it(`${name}: works, and fails as documented`, async () => run(new Stage(await newPair(server))))
  }
})

const status = async (handle: string, value: string): Promise<void> => {
  const client = new Database({ connectionString: database })
  await client.connect()
  await client.query("UPDATE agents SET status = $2 WHERE handle = $1", [handle, value])
  await client.end()
}

const noRetries = { maxRetries: 0, baseDelayMs: 1, maxDelayMs: 1 }

/** Everything else that the package exports: how it is shown, or why the server has no part in it. */
const exported: {
  readonly [K in keyof typeof published]: "shown above" | "no part of the wire" | ((stage: Stage) => Promise<void>)
} = {
  AgentChatClient: "shown above",
  RealtimeClient: "shown above",
  AgentChatError: "shown above",
  BlockedError: "shown above",
  ForbiddenError: "shown above",
  NotFoundError: "shown above",
  GroupDeletedError: "shown above",
  UnauthorizedError: "shown above",
  ValidationError: "shown above",
  ConnectionError: "shown above",
  // For the code RESTRICTED, which wire.md B9 has as AGENT_RESTRICTED.
  RestrictedError: "no part of the wire",
  // Makes the errors that are shown above.
  createAgentChatError: "no part of the wire",
  DEFAULT_RETRY_POLICY: "no part of the wire",
  AwaitingReplyError: async ({ alice, carol }) => {
    const to = (await carol()).handle
    const { message } = await alice.client.sendMessage({ to, content: { text: words() } })
    const error = await refusalOf(alice.client.sendMessage({ to, content: { text: words() } }))
    if (!(error instanceof AwaitingReplyError)) return assert.fail(String(error))
    assert.deepStrictEqual([error.recipientHandle, error.waitingSince], [to, message.created_at])
  },
  RecipientBackloggedError: async ({ alice, bob }) => {
    const warnings: Array<published.BacklogWarning> = []
    const client = new AgentChatClient({
      apiKey: alice.key,
      baseUrl: server.url,
      onBacklogWarning: (w) => void warnings.push(w)
    })
    const send = () => client.sendMessage({ to: bob.handle, content: { text: words() } })
    const sent = [await send(), await send(), await send(), await send()]
    assert.deepStrictEqual(sent.map(({ backlogWarning }) => backlogWarning?.undeliveredCount), [
      undefined,
      undefined,
      3,
      4
    ])
    assert.deepStrictEqual(
      warnings,
      [3, 4].map((undeliveredCount) => ({ recipientHandle: bob.handle, undeliveredCount }))
    )
    const error = await refusalOf(send())
    if (!(error instanceof RecipientBackloggedError)) return assert.fail(String(error))
    assert.deepStrictEqual([error.status, error.recipientHandle, error.undeliveredCount], [429, bob.handle, 4])
    await catchUp(bob)
    await send()
  },
  RateLimitedError: async ({ alice }) => {
    const client = new AgentChatClient({ apiKey: alice.key, baseUrl: server.url, retry: noRetries })
    for (let i = 0; i < 3; i++) await client.setAvatar(alice.handle, picture)
    const error = await refusalOf(client.setAvatar(alice.handle, picture))
    if (!(error instanceof RateLimitedError)) return assert.fail(String(error))
    assert.deepStrictEqual([error.status, error.code], [429, "RATE_LIMITED"])
    assert.isAtLeast(error.retryAfterMs ?? 0, 1_000)
  },
  SuspendedError: async ({ alice, bob }) => {
    await status(alice.handle, "suspended")
    // What is known of an agent may be a second old.
    await eventually("the suspension", async () => (await alice.client.getMe()).status === "suspended" || undefined)
    await assertRefused(alice.client.listContacts(), [SuspendedError, 403, "AGENT_SUSPENDED"])
    const sent = await say(bob, alice)
    await status(alice.handle, "active")
    await eventually("the end of it", async () => (await alice.client.getMe()).status === "active" || undefined)
    assert.deepStrictEqual(idsOf(await inbox(alice)), [sent.id])
  },
  ServerError: async ({ alice }) => {
    // A file where the folder of the mail was.
    const [folder, aside] = [join(outside, "outbox"), join(outside, "aside")]
    await rename(folder, aside)
    await writeFile(folder, "")
    try {
      await assertRefused(alice.client.rotateKey(alice.handle), [ServerError, 500, "OTP_FAILED"])
    } finally {
      await rm(folder)
      await rename(aside, folder)
    }
    await alice.client.rotateKey(alice.handle)
    assert.match(await server.code(alice.email), /^\d{6}$/)
  },
  HttpTransport: async ({ alice }) => {
    const transport = new published.HttpTransport({ apiKey: alice.key, baseUrl: server.url, retry: noRetries })
    const answer = await transport.request<published.Agent>("GET", "/v1/agents/me")
    assert.strictEqual(matching(Shapes.Agent, answer.data).handle, alice.handle)
    assert.deepStrictEqual([answer.status, answer.requestId], [200, answer.headers.get("x-request-id")])
    await assertRefused(transport.request("GET", "/v1/nothing"), notFound)
    const nowhere = new published.HttpTransport({ baseUrl: "http://127.0.0.1:1", retry: noRetries })
    assert.instanceOf(await refusalOf(nowhere.request("GET", "/v1/health")), ConnectionError)
    assert.deepStrictEqual(await publicOf("HttpTransport", published.HttpTransport.prototype), ["request"])
  },
  paginate: async ({ alice, bob, carol }) => {
    await alice.client.addContact((await carol()).handle)
    const page = async (offset: number, limit: number) => {
      const { contacts, ...rest } = await alice.client.listContacts({ offset, limit })
      return { items: contacts, ...rest }
    }
    const all = await collected(published.paginate(page, { pageSize: 1 }))
    assert.deepStrictEqual(all.map(({ handle }) => handle), [bob.handle, (await carol()).handle])
    await assertRefused(collected(published.paginate(page, { pageSize: -1 })), invalid)
  },
  parseRetryAfter: async ({ alice }) => {
    const path = `/v1/agents/${alice.handle}/avatar`
    for (let i = 0; i < 3; i++) await alice.http.request("PUT", path, { raw: picture })
    const limited = await alice.http.request("PUT", path, { raw: picture })
    const { details } = limited.refused(429, "RATE_LIMITED")
    const waits = published.parseRetryAfter(limited.header("retry-after")) ?? assert.fail("it was not understood")
    assert.isAtLeast(waits, Number(details?.["retry_after_ms"]))
    assert.isBelow(waits - Number(details?.["retry_after_ms"]), 1_000)
    assert.isNull(published.parseRetryAfter((await alice.http.get("/v1/agents/me")).header("retry-after")))
  },
  renderMessageContext: async ({ alice, band, bob }) => {
    const group = await band()
    await alice.client.updateAgent(alice.handle, { display_name: "Ada" })
    await alice.client.sendMessage({ conversation_id: group, content: { text: `@${bob.handle}, now` } })
    const [message] = await bob.client.getMessages(group)
    if (message === undefined) return assert.fail("no message")
    const text = published.renderMessageContext(message, { selfHandle: bob.handle })
    for (
      const part of [`From: Ada (@${alice.handle})`, 'group "The band" (2 members)', "You were @-mentioned", ", now"]
    ) {
      assert.include(text, part)
    }
    assert.notInclude(published.renderMessageContext(message, { selfHandle: alice.handle }), "@-mentioned")
  },
  verifyWebhook: async (stage) => {
    const { secret } = await verifiedDelivery(stage)
    assert.isNotEmpty(secret)
  },
  WebhookVerificationError: async (stage) => {
    const { body, secret, signature } = await verifiedDelivery(stage)
    const later = () => Date.now() + 301_000
    const bad = [
      [{ payload: body, signature, secret: `${secret}x` }, "bad_signature"],
      [{ payload: `${body} `, signature, secret }, "bad_signature"],
      [{ payload: body, signature: null, secret }, "missing_signature"],
      [{ payload: body, signature: "nonsense", secret }, "malformed_signature"],
      [{ payload: body, signature, secret, now: later }, "timestamp_skew"]
    ] as const
    for (const [options, reason] of bad) {
      const error = await refusalOf(published.verifyWebhook(options))
      if (!(error instanceof WebhookVerificationError)) return assert.fail(String(error))
      assert.strictEqual(error.reason, reason)
    }
  },
  // The other codes of the wire are plain text to the client (section H).
  ErrorCode: async () => {
    const emitted = await readFile(new URL("./openapi.json", import.meta.url), "utf8")
    const never = new Set([
      "SUSPENDED",
      "RESTRICTED",
      "INVALID_API_KEY",
      "AGENT_PAUSED_BY_OWNER",
      "WEBHOOK_DELIVERY_FAILED",
      "OWNER_NOT_FOUND",
      "ALREADY_CLAIMED",
      "CLAIM_NOT_FOUND"
    ])
    for (const code of Object.values(published.ErrorCode)) {
      assert.strictEqual(emitted.includes(`"${code}"`), !never.has(code), code)
    }
  },
  ALLOWED_ATTACHMENT_MIME: async ({ alice, bob }) => {
    for (const content_type of published.ALLOWED_ATTACHMENT_MIME) {
      await alice.client.createUpload({ to: bob.handle, ...announced, content_type })
    }
    const other = { to: bob.handle, ...announced, content_type: "text/html" }
    ;(await alice.http.post("/v1/uploads", other)).refused(400, "VALIDATION_ERROR")
  },
  MAX_ATTACHMENT_SIZE: async ({ alice, bob }) => {
    const size = published.MAX_ATTACHMENT_SIZE
    await alice.client.createUpload({ to: bob.handle, ...announced, size })
    await assertRefused(alice.client.createUpload({ to: bob.handle, ...announced, size: size + 1 }), invalid)
  },
  VERSION: async () => {
    const url = new URL("../../package.json", import.meta.url)
    const { dependencies } = JSON.parse(await readFile(url, "utf8")) as { dependencies: Record<string, string> }
    assert.strictEqual(published.VERSION, dependencies["agentchatme"])
  }
}

const verifiedDelivery = async ({ alice, bob, webhook }: Stage) => {
  const { secret } = matching(Shapes.CreatedWebhook, await webhook())
  const sent = await say(bob, alice)
  const { body, headers } = await eventually(
    "a delivery",
    () => received.find(({ path }) => path === `/${alice.handle}`)
  )
  const signature = String(headers["agentchat-signature"])
  const payload: published.WebhookPayload = await published.verifyWebhook({ payload: body, signature, secret })
  assert.deepStrictEqual([payload.event, payload.data["id"]], ["message.new", sent.id])
  return { body, signature, secret }
}

describe("the other exports of the package", () => {
  it("have no export that this test leaves out", () => {
    assert.deepStrictEqual(Object.keys(exported).sort(), Object.keys(published).sort())
  })

  for (const [name, run] of Object.entries(exported)) {
    if (typeof run === "string") continue
    it(`${name}: means on this server what it is published for`, async () => run(new Stage(await newPair(server))))
  }
})
