import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import type { Answer } from "../support/Http.ts"
import { type Server, startServer, type TestAgent } from "../support/Server.ts"
import { Socket } from "../support/Socket.ts"
import { type JsonSchema, type OpenApiDocument, operationsOf } from "./Document.ts"
import { fromSchema } from "./FromSchema.ts"
import { diceOf, filled, groupWith, type LiveWorld, makeWorld, plans } from "./LiveWorld.ts"
import { freshMsgId, inbox, say } from "./Talk.ts"

/** What is somebody else's, and what nobody has. */
interface Things {
  readonly world: LiveWorld
  readonly ann: TestAgent
  readonly ben: TestAgent
  readonly dan: TestAgent
  /** Whom nobody knows. */
  readonly stranger: TestAgent
  /** The admin of a group of its own. */
  readonly mover: TestAgent
  readonly ownGroup: string
  /** Of ann and ben, and a message there. */
  readonly conversation: string
  readonly message: string
  /** To guest, into ann's group. */
  readonly invite: string
  readonly delivery: string
  /** Of a rotation that ann began. */
  readonly pending: string
  readonly file: string
}

/** A request in which `{}` stands for the id, sent with each of the real ones and with the unknown one. */
interface Case {
  /** The stranger unless said otherwise. */
  readonly as?: TestAgent
  readonly path: string
  readonly body?: unknown
  readonly raw?: Uint8Array<ArrayBuffer>
  readonly real: ReadonlyArray<string>
  readonly unknown: string
  readonly status: number
  readonly code?: string
}

/** Cases, or why the same answer for all is not what is wanted here. */
type Row = ((things: Things) => ReadonlyArray<Case>) | string

const TAIL = "0123456789abcdef"
const NOBODY = "nobody-at-all"

const conversationIds = ({ conversation, world }: Things) => ({
  real: [conversation, world.group, world.deadGroup],
  unknown: `grp_${TAIL}`
})

const groupIds = ({ world }: Things) => ({ real: [world.group, world.deadGroup], unknown: `grp_${TAIL}` })

const messageIds = ({ message, world }: Things) => ({ real: [message, world.groupMessage], unknown: `msg_${TAIL}` })

const ofGroup = (path: string, body?: unknown): Row => (things) => [
  { path, body, ...groupIds(things), status: 404, code: "GROUP_NOT_FOUND" }
]

const ofConversation = (path: string): Row => (things) => [
  { path, ...conversationIds(things), status: 404, code: "CONVERSATION_NOT_FOUND" }
]

/** Whether or not there is such an agent, it is not the caller. */
const ownOnly = (path: string, body?: unknown, raw?: Uint8Array<ArrayBuffer>): Row => ({ ann, ben }) => [
  {
    path,
    body,
    ...(raw === undefined ? {} : { raw }),
    real: [ann.handle, ben.handle],
    unknown: NOBODY,
    status: 403,
    code: "FORBIDDEN"
  }
]

const publicHandle = "handles are public: the directory lists them"
const bearerOfCode = "whoever holds the id and the mailed code is the owner of the address"
const ofMember = "an admin of the group knows its members; for all others the group itself is masked"

/** Per operation and place of an id: what another's id must not tell. A new one needs a row here. */
const matrix: Readonly<Record<string, Row>> = {
  "POST /v1/register handle": "answers whether a handle is taken, as the contract has it",
  "POST /v1/register/verify pending_id": bearerOfCode,
  "POST /v1/agents/recover/verify pending_id": bearerOfCode,
  "GET /v1/agents/{handle} handle": publicHandle,
  "PATCH /v1/agents/{handle} handle": ownOnly("/v1/agents/{}", { display_name: "mine" }),
  "DELETE /v1/agents/{handle} handle": ownOnly("/v1/agents/{}"),
  "POST /v1/agents/{handle}/rotate-key handle": ownOnly("/v1/agents/{}/rotate-key"),
  "POST /v1/agents/{handle}/rotate-key/verify handle": (things) => [{
    path: "/v1/agents/{}/rotate-key/verify",
    body: { pending_id: things.pending, code: "000000" },
    real: [things.ann.handle],
    unknown: NOBODY,
    status: 403,
    code: "FORBIDDEN"
  }],
  "POST /v1/agents/{handle}/rotate-key/verify pending_id":
    "the contract names 403 for another agent's pending rotation",
  "PUT /v1/agents/{handle}/avatar handle": ownOnly("/v1/agents/{}/avatar", undefined, new Uint8Array([1, 2, 3])),
  "DELETE /v1/agents/{handle}/avatar handle": ownOnly("/v1/agents/{}/avatar"),
  "POST /v1/contacts handle": publicHandle,
  "GET /v1/contacts/{handle} handle": ({ ann, ben }) => [
    { path: "/v1/contacts/{}", real: [ann.handle, ben.handle], unknown: NOBODY, status: 200 }
  ],
  "PATCH /v1/contacts/{handle} handle": ({ ben, world }) => [
    {
      path: "/v1/contacts/{}",
      body: { notes: "mine" },
      real: [ben.handle],
      unknown: world.loners.lost.handle,
      status: 404,
      code: "NOT_FOUND"
    }
  ],
  "DELETE /v1/contacts/{handle} handle": ({ ben, world }) => [
    { path: "/v1/contacts/{}", real: [ben.handle], unknown: world.loners.lost.handle, status: 404, code: "NOT_FOUND" }
  ],
  "POST /v1/contacts/{handle}/block handle": "anybody may block anybody, for themselves",
  "DELETE /v1/contacts/{handle}/block handle": ({ world }) => [{
    path: "/v1/contacts/{}/block",
    real: [world.loners.blocked.handle],
    unknown: world.loners.lost.handle,
    status: 404,
    code: "NOT_FOUND"
  }],
  "POST /v1/contacts/{handle}/report handle": "anybody may report anybody, for themselves",
  "POST /v1/messages to": publicHandle,
  "POST /v1/messages conversation_id": (things) => [{
    path: "/v1/messages",
    body: { conversation_id: "{}", client_msg_id: freshMsgId(), content: { text: "let me in" } },
    ...conversationIds(things),
    status: 404,
    code: "GROUP_NOT_FOUND"
  }],
  "POST /v1/messages content.attachment_id": ({ ben, file, world }) => [{
    path: "/v1/messages",
    body: { to: ben.handle, client_msg_id: freshMsgId(), type: "file", content: { attachment_id: "{}" } },
    real: [file, world.groupFile, world.deadFile],
    unknown: `att_${TAIL}`,
    status: 404,
    code: "ATTACHMENT_NOT_FOUND"
  }],
  "GET /v1/messages/{id} id": ofConversation("/v1/messages/{}"),
  "GET /v1/messages/{id} around_message_id": (things) => [
    {
      as: things.dan,
      path: `/v1/messages/${things.world.conversations[2]?.[2]}?around_message_id={}`,
      ...messageIds(things),
      status: 404,
      code: "MESSAGE_NOT_FOUND"
    },
    {
      path: `/v1/messages/${things.conversation}?around_message_id={}`,
      ...messageIds(things),
      status: 404,
      code: "CONVERSATION_NOT_FOUND"
    }
  ],
  "GET /v1/messages/search conversation_id": ofConversation("/v1/messages/search?q=word&conversation_id={}"),
  "GET /v1/messages/search after": "a time",
  "GET /v1/messages/sync after": ({ dan, delivery }) => [
    { as: dan, path: "/v1/messages/sync?after={}", real: [delivery], unknown: `del_${TAIL}${TAIL}`, status: 200 }
  ],
  "POST /v1/messages/sync/ack last_delivery_id": ({ dan, delivery }) => [{
    as: dan,
    path: "/v1/messages/sync/ack",
    body: { last_delivery_id: "{}" },
    real: [delivery],
    unknown: `del_${TAIL}${TAIL}`,
    status: 200
  }],
  "POST /v1/messages/{id}/read id": (things) => [
    { path: "/v1/messages/{}/read", ...messageIds(things), status: 404, code: "MESSAGE_NOT_FOUND" }
  ],
  "PUT /v1/messages/{id}/reactions/{emoji} id": (things) => [
    { path: "/v1/messages/{}/reactions/seen", ...messageIds(things), status: 404, code: "MESSAGE_NOT_FOUND" }
  ],
  "PUT /v1/messages/{id}/reactions/{emoji} emoji": "a word or an emoji",
  "DELETE /v1/messages/{id}/reactions/{emoji} id": (things) => [
    { path: "/v1/messages/{}/reactions/seen", ...messageIds(things), status: 404, code: "MESSAGE_NOT_FOUND" }
  ],
  "DELETE /v1/messages/{id}/reactions/{emoji} emoji": "a word or an emoji",
  "GET /v1/messages/{id}/outcomes id": (things) => [
    { path: "/v1/messages/{}/outcomes", ...messageIds(things), status: 404, code: "MESSAGE_NOT_FOUND" },
    // A recipient knows the message, but not what other recipients have reported.
    {
      as: things.dan,
      path: "/v1/messages/{}/outcomes",
      ...messageIds(things),
      status: 404,
      code: "MESSAGE_NOT_FOUND"
    }
  ],
  "DELETE /v1/messages/{id} id": (things) => [
    { path: "/v1/messages/{}", ...messageIds(things), status: 404, code: "MESSAGE_NOT_FOUND" }
  ],
  "GET /v1/conversations/{id}/context id": ofConversation("/v1/conversations/{}/context"),
  "GET /v1/conversations/{id}/participants id": ofConversation("/v1/conversations/{}/participants"),
  "DELETE /v1/conversations/{id} id": ofConversation("/v1/conversations/{}"),
  "POST /v1/mutes target_handle": publicHandle,
  "POST /v1/mutes target_id": (things) => [{
    path: "/v1/mutes",
    body: { target_kind: "conversation", target_id: "{}" },
    ...conversationIds(things),
    status: 404,
    code: "CONVERSATION_NOT_FOUND"
  }],
  "GET /v1/mutes/agent/{handle} handle": ({ ben }) => [
    { path: "/v1/mutes/agent/{}", real: [ben.handle], unknown: NOBODY, status: 404, code: "NOT_FOUND" }
  ],
  "DELETE /v1/mutes/agent/{handle} handle": ({ ben }) => [
    { path: "/v1/mutes/agent/{}", real: [ben.handle], unknown: NOBODY, status: 404, code: "NOT_FOUND" }
  ],
  "GET /v1/mutes/conversation/{id} id": (things) => [
    { path: "/v1/mutes/conversation/{}", ...conversationIds(things), status: 404, code: "NOT_FOUND" }
  ],
  "DELETE /v1/mutes/conversation/{id} id": (things) => [
    { path: "/v1/mutes/conversation/{}", ...conversationIds(things), status: 404, code: "NOT_FOUND" }
  ],
  "POST /v1/groups member_handles": publicHandle,
  "POST /v1/groups/invites/{id}/accept id": ({ invite }) => [
    {
      path: "/v1/groups/invites/{}/accept",
      real: [invite],
      unknown: `gri_${TAIL}`,
      status: 404,
      code: "INVITE_NOT_FOUND"
    }
  ],
  "DELETE /v1/groups/invites/{id} id": ({ invite }) => [
    { path: "/v1/groups/invites/{}", real: [invite], unknown: `gri_${TAIL}`, status: 404, code: "INVITE_NOT_FOUND" }
  ],
  "GET /v1/groups/{id} id": ofGroup("/v1/groups/{}"),
  "PATCH /v1/groups/{id} id": ofGroup("/v1/groups/{}", { name: "mine" }),
  "DELETE /v1/groups/{id} id": ofGroup("/v1/groups/{}"),
  "PUT /v1/groups/{id}/avatar id": (things) => [{
    path: "/v1/groups/{}/avatar",
    raw: things.world.pictures[0] ?? new Uint8Array(),
    ...groupIds(things),
    status: 404,
    code: "GROUP_NOT_FOUND"
  }],
  "DELETE /v1/groups/{id}/avatar id": ofGroup("/v1/groups/{}/avatar"),
  "POST /v1/groups/{id}/members id": (things) => [
    {
      path: "/v1/groups/{}/members",
      body: { handle: things.world.loners.lost.handle },
      ...groupIds(things),
      status: 404,
      code: "GROUP_NOT_FOUND"
    }
  ],
  "POST /v1/groups/{id}/members handle": publicHandle,
  "DELETE /v1/groups/{id}/members/{handle} id": (things) => [
    { path: `/v1/groups/{}/members/${things.ben.handle}`, ...groupIds(things), status: 404, code: "GROUP_NOT_FOUND" }
  ],
  "DELETE /v1/groups/{id}/members/{handle} handle": ofMember,
  "POST /v1/groups/{id}/members/{handle}/promote id": (things) => [
    {
      path: `/v1/groups/{}/members/${things.ben.handle}/promote`,
      ...groupIds(things),
      status: 404,
      code: "GROUP_NOT_FOUND"
    }
  ],
  "POST /v1/groups/{id}/members/{handle}/promote handle": ofMember,
  "POST /v1/groups/{id}/members/{handle}/demote id": (things) => [
    {
      path: `/v1/groups/{}/members/${things.ann.handle}/demote`,
      ...groupIds(things),
      status: 404,
      code: "GROUP_NOT_FOUND"
    }
  ],
  "POST /v1/groups/{id}/members/{handle}/demote handle": ofMember,
  "POST /v1/groups/{id}/leave id": ofGroup("/v1/groups/{}/leave"),
  "GET /v1/groups/{id}/invites id": ofGroup("/v1/groups/{}/invites"),
  "DELETE /v1/groups/{id}/invites/{invite_id} id": (things) => [
    { path: `/v1/groups/{}/invites/${things.invite}`, ...groupIds(things), status: 404, code: "GROUP_NOT_FOUND" }
  ],
  "DELETE /v1/groups/{id}/invites/{invite_id} invite_id": ({ invite, mover, ownGroup }) => [{
    as: mover,
    path: `/v1/groups/${ownGroup}/invites/{}`,
    real: [invite],
    unknown: `gri_${TAIL}`,
    status: 404,
    code: "INVITE_NOT_FOUND"
  }],
  "GET /v1/presence/{handle} handle": ({ ann, ben }) => [
    { path: "/v1/presence/{}", real: [ann.handle, ben.handle], unknown: NOBODY, status: 404, code: "NOT_FOUND" }
  ],
  "POST /v1/presence/batch handles": ({ ann, ben }) => [
    {
      path: "/v1/presence/batch",
      body: { handles: ["{}"] },
      real: [ann.handle, ben.handle],
      unknown: NOBODY,
      status: 200
    }
  ],
  "POST /v1/uploads to": publicHandle,
  "POST /v1/uploads conversation_id": (things) => [{
    path: "/v1/uploads",
    body: { conversation_id: "{}", filename: "a.txt", content_type: "text/plain", size: 3, sha256: "ab".repeat(32) },
    ...conversationIds(things),
    status: 404,
    code: "GROUP_NOT_FOUND"
  }],
  "GET /v1/attachments/{id} id": ({ file, world }) => [
    {
      path: "/v1/attachments/{}",
      real: [file, world.groupFile, world.deadFile],
      unknown: `att_${TAIL}`,
      status: 404,
      code: "NOT_FOUND"
    }
  ],
  "GET /v1/attachments/{id}/info id": ({ file, world }) => [
    {
      path: "/v1/attachments/{}/info",
      real: [file, world.groupFile, world.deadFile],
      unknown: `att_${TAIL}`,
      status: 404,
      code: "NOT_FOUND"
    }
  ],
  "PUT /v1/reply/active session_id": "the caller's own word",
  "DELETE /v1/reply/active session_id": "the caller's own word",
  "POST /v1/reply/claim message_id": (things) => [{
    path: "/v1/reply/claim",
    body: { message_id: "{}", holder: "daemon:1" },
    ...messageIds(things),
    status: 404,
    code: "MESSAGE_NOT_FOUND"
  }],
  "POST /v1/reply/claim-batch message_ids": (things) => [
    {
      path: "/v1/reply/claim-batch",
      body: { message_ids: ["{}"], holder: "daemon:1" },
      ...messageIds(things),
      status: 200
    }
  ],
  "DELETE /v1/connections/{id} id": ({ world }) => [
    { path: "/v1/connections/{}", real: [world.connection], unknown: `con_${TAIL}`, status: 404, code: "NOT_FOUND" }
  ],
  "GET /v1/webhooks/{id} id": ({ world }) => [
    { path: "/v1/webhooks/{}", real: [world.webhook], unknown: `whk_${TAIL}`, status: 404, code: "NOT_FOUND" }
  ],
  "DELETE /v1/webhooks/{id} id": ({ world }) => [
    { path: "/v1/webhooks/{}", real: [world.webhook], unknown: `whk_${TAIL}`, status: 404, code: "NOT_FOUND" }
  ]
}

/** A frame in which `{}` stands for the id; what comes back is the same for all of them. */
interface FrameCase {
  readonly as?: TestAgent
  readonly frame: object
  readonly real: ReadonlyArray<string>
  readonly unknown: string
}

/** The same for what is said on the socket. */
const frameMatrix: Readonly<Record<string, (things: Things) => FrameCase>> = {
  "ack message_id": (things) => ({ frame: { type: "ack", message_id: "{}" }, ...messageIds(things) }),
  "message.read_ack payload.conversation_id": (things) => ({
    frame: { type: "message.read_ack", payload: { conversation_id: "{}", through_seq: 9 } },
    ...conversationIds(things)
  }),
  "message.read_ack payload.message_id": (things) => ({
    as: things.dan,
    frame: {
      type: "message.read_ack",
      payload: { conversation_id: things.world.conversations[2]?.[2], message_id: "{}" }
    },
    real: [things.message],
    unknown: `msg_${TAIL}`
  }),
  "typing.start payload.conversation_id": (things) => ({
    frame: { type: "typing.start", payload: { conversation_id: "{}" } },
    ...conversationIds(things)
  }),
  "typing.stop payload.conversation_id": (things) => ({
    frame: { type: "typing.stop", payload: { conversation_id: "{}" } },
    ...conversationIds(things)
  })
}

/** A field that names something; a `client_msg_id` is the sender's own word. */
const namesSomething = (field: string): boolean =>
  /(^|_)id$|_ids$|handles?$|^to$|^after$/.test(field) && field !== "client_msg_id"

const fieldsOf = (schema: JsonSchema | undefined, prefix = ""): ReadonlyArray<string> => [
  ...Object.entries(schema?.properties ?? {}).flatMap((
    [name, inner]
  ) => [`${prefix}${name}`, ...fieldsOf(inner, `${prefix}${name}.`)]),
  ...(schema?.anyOf ?? []).flatMap((choice) => fieldsOf(choice, prefix))
]

/** Everything in the document that names something: operation and place. */
const placesOf = (document: OpenApiDocument): ReadonlyArray<string> =>
  operationsOf(document).flatMap((operation) =>
    [
      ...operation.pathParameters,
      ...operation.query.map(({ name }) => name).filter(namesSomething),
      ...fieldsOf(operation.body).filter((field) => namesSomething(field.replace(/.*\./, "")))
    ].map((place) => `${operation.name} ${place}`)
  )

/** The same of the frames that callers send; `id` is the caller's own word there. */
const framePlacesOf = (document: OpenApiDocument): ReadonlyArray<string> =>
  Object.entries(document["x-websocket"].send).flatMap(([type, schema]) =>
    fieldsOf(schema).filter((field) => field !== "id" && namesSomething(field.replace(/.*\./, ""))).map((field) =>
      `${type} ${field}`
    )
  )

/** What agents can see of their things, through every route that shows some. */
const viewOf = async (things: Things, agents: ReadonlyArray<TestAgent>): Promise<Readonly<Record<string, string>>> => {
  const { ann, conversation, file, world } = things
  const own = (agent: TestAgent) => [
    "/v1/agents/me",
    "/v1/contacts?limit=200",
    "/v1/contacts/blocks",
    "/v1/conversations?limit=200",
    "/v1/messages/sync?limit=500",
    "/v1/mutes",
    "/v1/webhooks",
    "/v1/connections",
    "/v1/groups/invites",
    `/v1/presence/${agent.handle}`
  ]
  const shared = [
    `/v1/messages/${conversation}?limit=200`,
    `/v1/messages/${world.group}?limit=200`,
    `/v1/conversations/${conversation}/context`,
    `/v1/conversations/${world.group}/context`,
    `/v1/groups/${world.group}`,
    `/v1/groups/${world.group}/invites`
  ]
  const asked = agents.flatMap((agent) =>
    [...own(agent), ...(agent === ann ? shared : [])].map((path) => [agent, path] as const)
  )
  const seen = await Promise.all(
    asked.map(async ([agent, path]) => [`${agent.handle} ${path}`, (await agent.http.get(path)).text] as const)
  )
  // Where a file can be fetched is another place each time.
  const fetched = await ann.http.get(`/v1/attachments/${file}`)
  return Object.fromEntries([...seen, ["file", String(fetched.status)]])
}

/** All of an answer but what differs between any two requests; ids of the request stand as `{}`. */
const comparable = (answer: Answer, id: string) => ({
  status: answer.status,
  headers: [...answer.headers].filter(([name]) => !/^(x-request-id|date|content-length|ratelimit-.*)$/.test(name))
    .sort(),
  text: answer.text.replaceAll(id, "{}")
})

/** What only the server says. */
const FORGED = "FORGEDFORGEDFORG"
const forged: Readonly<Record<string, unknown>> = {
  id: `msg_${FORGED}`,
  seq: 987_654_321,
  sender: "forged-sender",
  from: "forged-sender",
  created_at: "1999-01-01T00:00:00.000Z",
  updated_at: "1999-01-01T00:00:00.000Z",
  added_at: "1999-01-01T00:00:00.000Z",
  delivered_at: "1999-01-01T00:00:00.000Z",
  read_at: "1999-01-01T00:00:00.000Z",
  last_seen: "1999-01-01T00:00:00.000Z",
  last_message_at: "1999-01-01T00:00:00.000Z",
  deleted_at: "1999-01-01T00:00:00.000Z",
  status: "suspended",
  context: { sender: { handle: "forged-sender" }, conversation: { group_name: FORGED }, mentions: ["forged-sender"] },
  created_by: "forged-sender",
  creator: "forged-sender",
  inviter_handle: "forged-sender",
  role: "creator",
  your_role: "creator",
  members: [{ handle: "forged-sender", role: "admin" }],
  member_count: 987_654_321,
  muter_agent_id: `agt_${FORGED}`,
  agent_id: `agt_${FORGED}`,
  owner_id: `agt_${FORGED}`,
  uploader: `agt_${FORGED}`,
  group_id: `grp_${FORGED}`,
  attachment_id: `att_${FORGED}`,
  delivery_id: `del_${TAIL}${TAIL}`,
  invite_id: `gri_${FORGED}`,
  api_key: `ac_${FORGED}`,
  email_masked: "forged@example.com",
  paused_by_owner: FORGED,
  restricted_until: "1999-01-01T00:00:00.000Z",
  avatar_key: FORGED,
  upload_url: `http://${FORGED}/`,
  expires_in: 987_654_321,
  direct_state: FORGED,
  is_muted: FORGED,
  active: FORGED
}
const traces = [
  FORGED,
  "forged-sender",
  "forged@example.com",
  "1999-01-01",
  "987654321",
  '"suspended"',
  '"creator"',
  `${TAIL}${TAIL}`
]

/** The body with the forged fields wherever an object of known fields stands, except fields that may be set. */
const withForged = (schema: JsonSchema | undefined, body: unknown): unknown => {
  if (typeof body !== "object" || body === null || Array.isArray(body)) return body
  const known = Object.entries(schema?.properties ?? {})
  const settable = new Set(known.map(([name]) => name))
  const inner = Object.entries(body).map(([name, value]) => {
    const of = schema?.properties?.[name]
    return [name, of?.properties === undefined ? value : withForged(of, value)]
  })
  return {
    ...Object.fromEntries(Object.entries(forged).filter(([name]) => !settable.has(name))),
    ...Object.fromEntries(inner)
  }
}

describe("data of another agent", () => {
  let server: Server
  let document: OpenApiDocument
  let world: LiveWorld

  beforeAll(async () => {
    server = await startServer({
      env: {
        LIMITS_OTP_COOLDOWN_SECONDS: "0",
        LIMITS_AVATAR_WRITES_PER_MINUTE: "1000000",
        LIMITS_MUTE_WRITES_PER_SECOND: "1000000",
        LIMITS_REACTIONS_PER_MINUTE: "1000000",
        WEBHOOK_ALLOW_PRIVATE: "loopback"
      }
    })
    document = (await server.http().get("/v1/openapi.json")).body as OpenApiDocument
    world = await makeWorld(server)
  })
  afterAll(() => server.stop())

  it("has a row in the matrix for each place of an id in the document", () => {
    const places = placesOf(document)
    assert.isAbove(places.length, 50)
    assert.deepStrictEqual(places.filter((place) => matrix[place] === undefined), [], "places without a row")
    assert.deepStrictEqual(Object.keys(matrix).filter((place) => !places.includes(place)), [], "rows without a place")
    assert.deepStrictEqual(Object.keys(frameMatrix).sort(), [...framePlacesOf(document)].sort(), "frames")
  })

  it("gets byte for byte the answer of what does not exist, and stays as it is", async () => {
    const [ann, ben, , dan] = world.friends
    const [, , conversation, message] = world.conversations[0] ?? []
    const { blocked, guest, mover } = world.loners
    if (
      ann === undefined || ben === undefined || dan === undefined || conversation === undefined || message === undefined
    ) {
      return assert.fail("the world lacks something")
    }
    assert.strictEqual((await ann.http.post(`/v1/contacts/${blocked.handle}/block`)).status, 200)
    const rotation = (await ann.http.post(`/v1/agents/${ann.handle}/rotate-key`)).body as {
      readonly pending_id: string
    }
    const invited = (await ann.http.post(`/v1/groups/${world.group}/members`, { handle: guest.handle })).body as {
      readonly invite_id: string
    }
    await say(ben, ann)
    await say(ann, dan)
    const delivery = (await inbox(ann)).at(-1)?.delivery_id ?? assert.fail("nothing in the inbox")
    const things: Things = {
      world,
      ann,
      ben,
      dan,
      stranger: world.stranger,
      mover,
      conversation,
      message,
      delivery,
      ownGroup: (await groupWith(mover, [])).id,
      invite: invited.invite_id,
      pending: rotation.pending_id,
      file: world.file.id
    }
    const onlookers = [ann, ben, dan, guest, world.stranger]
    const sockets = await Promise.all([ann, ben, guest].map(async (agent) => {
      const socket = await Socket.hello(server, agent.key)
      for (const { id } of await inbox(agent)) await socket.message(id)
      return socket
    }))
    for (
      const body of [{ target_kind: "agent", target_handle: ben.handle }, {
        target_kind: "conversation",
        target_id: conversation
      }]
    ) {
      assert.strictEqual((await ann.http.post("/v1/mutes", body)).status, 201)
    }
    // Each hears of the other sockets' coming.
    const heard = (socket: Socket) => socket.frames.filter(({ type }) => type !== "presence.update" && type !== "pong")
    const heardBefore = sockets.map((socket) => heard(socket).length)
    const before = await viewOf(things, onlookers)
    let unseen: Array<string> = []
    const places = placesOf(document)
    let compared = 0
    for (const [place, row] of Object.entries(matrix)) {
      if (typeof row === "string" || !places.includes(place)) continue
      const [method = ""] = place.split(" ")
      for (const { as = world.stranger, body, code, path, raw, real, status, unknown } of row(things)) {
        const ask = (id: string): Promise<Answer> =>
          as.http.request(method, path.replace("{}", id), {
            ...(body === undefined ? {} : { json: JSON.parse(JSON.stringify(body).replace("{}", id)) as unknown }),
            ...(raw === undefined ? {} : { raw })
          })
        const expected = await ask(unknown)
        assert.strictEqual(expected.status, status, `${place}: ${expected}`)
        if (code !== undefined) expected.refused(status, code)
        for (const id of real) {
          assert.deepStrictEqual(comparable(await ask(id), id), comparable(expected, unknown), `${place}: ${id}`)
          compared++
        }
      }
      unseen.push(place)
      // A look at everything takes a while.
      if (method === "GET" || unseen.length < 8) continue
      assert.deepStrictEqual(await viewOf(things, onlookers), before, unseen.join(", "))
      unseen = []
    }
    assert.deepStrictEqual(await viewOf(things, onlookers), before, unseen.join(", "))
    assert.isAbove(compared, 60)
    const [strange, ofDan] = await Promise.all([world.stranger, dan].map((agent) => Socket.hello(server, agent.key)))
    if (strange === undefined || ofDan === undefined) return assert.fail("no sockets")
    for (const { id } of await inbox(dan)) await ofDan.message(id)
    let asked = 0
    for (const [place, row] of Object.entries(frameMatrix)) {
      const { as, frame, real, unknown } = row(things)
      const socket = as === undefined ? strange : ofDan
      // Conversations are refused with an error, messages are passed over in silence.
      const isRefused = place.endsWith("conversation_id")
      const ask = async (id: string): Promise<string> => {
        const from = heard(socket).length
        const number = ++asked
        socket.send({ ...JSON.parse(JSON.stringify(frame).replace("{}", id)) as object, id: number })
        await socket.settled()
        if (isRefused) await socket.waitFor((answer) => answer["id"] === number)
        return JSON.stringify(heard(socket).slice(from)).replaceAll(id, "{}").replace(`"id":${number},`, "")
      }
      const expected = await ask(unknown)
      assert.strictEqual(expected !== "[]", isRefused, place)
      for (const id of real) assert.strictEqual(await ask(id), expected, `${place}: ${id}`)
    }
    await Promise.all([strange, ofDan].map((socket) => socket.close()))
    // Presence of those two was not what it is while they were looked at.
    const looked = Object.keys(before).filter((what) => !what.includes("/v1/presence/"))
    const now = await viewOf(things, onlookers)
    for (const what of looked) assert.strictEqual(now[what], before[what], `${what} after frames`)
    await Promise.all(sockets.map((socket) => socket.settled()))
    assert.deepStrictEqual(
      sockets.map((socket, at) => heard(socket).slice(heardBefore[at])),
      [[], [], []],
      "what was pushed"
    )
    await Promise.all(sockets.map((socket) => socket.close()))
  })

  it("cannot be claimed: fields that only the server sets are ignored in every write", async () => {
    let written = 0
    for (const operation of operationsOf(document)) {
      if (operation.method === "GET" || operation.raw || operation.name.startsWith("POST /v1/agents/recover/verify"))
        continue
      const dice = diceOf([written, written + 1, written + 3])
      const call = await plans[operation.name]?.(world, dice) ?? assert.fail(`no plan for ${operation.name}`)
      const [generated] = operation.body === undefined
        ? [undefined]
        : fc.sample(fromSchema(document, operation.body), { numRuns: 1, seed: 7 })
      const body = withForged(operation.body, filled(generated ?? {}, call.body))
      const path = operation.path.replaceAll(
        /\{(\w+)\}/g,
        (_, name: string) => encodeURIComponent(call.path?.[name] ?? "")
      )
      const http = server.http(call.as?.key)
      const answer = await http.request(operation.method, path, { json: body })
      call.done?.(answer)
      assert.isBelow(answer.status, 400, `${operation.name}: ${answer}`)
      const seen = [answer]
      // What was written shows in what its writer can read, unless the account or its key is gone.
      if (
        call.as !== undefined && operation.name !== "DELETE /v1/agents/{handle}" &&
        !operation.name.endsWith("/rotate-key/verify")
      ) {
        const { group } = world
        const reads = [
          "/v1/agents/me",
          "/v1/contacts",
          "/v1/contacts/blocks",
          "/v1/conversations",
          "/v1/mutes",
          "/v1/webhooks"
        ]
          .concat(
            "/v1/groups/invites",
            `/v1/presence/${call.as.handle}`,
            `/v1/messages/${group}`,
            `/v1/groups/${group}`
          )
          .concat(`/v1/messages/${world.conversations[0]?.[2]}`)
        seen.push(...await Promise.all(reads.map((read) => http.get(read))))
      }
      for (const one of seen) {
        for (const trace of traces) assert.notInclude(one.text, trace, `${operation.name}: ${one}`)
      }
      written++
    }
    assert.isAbove(written, 30)
    const made = await Promise.all(world.friends.map((friend) => friend.http.get(`/v1/groups/${world.group}`)))
    for (const answer of made) assert.include([200, 404], answer.status)
  })

  it("cannot be claimed by joining a group: an agent that asks to be an admin joins as a member", async () => {
    const { guest, mover } = world.loners
    const { id } = await groupWith(mover, [])
    const added = await mover.http.post(`/v1/groups/${id}/members`, {
      handle: guest.handle,
      role: "admin",
      status: "accepted"
    })
    const { invite_id } = added.body as { readonly invite_id: string }
    const accepted = await guest.http.post(`/v1/groups/invites/${invite_id}/accept`, {
      role: "admin",
      your_role: "admin",
      joined_at: "1999"
    })
    const group = accepted.body as { readonly your_role: string; readonly members: ReadonlyArray<object> }
    assert.strictEqual(group.your_role, "member", `${accepted}`)
    assert.deepInclude(group.members[1], { handle: guest.handle, role: "member" })
  })
})
