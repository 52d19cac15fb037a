import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { AgentChatError } from "agentchatme"
import { createHash, randomBytes } from "node:crypto"
import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import S3rver from "s3rver"
import sharp from "sharp"
import { call, connect, granted, refused } from "../mcp/Mcp.ts"
import { Answer } from "../support/Http.ts"
import { patient } from "../support/Patient.ts"
import { newAgent, type Server, sharedServer, startServer, type TestAgent } from "../support/Server.ts"
import { Socket } from "../support/Socket.ts"
import * as Shapes from "./Shapes.ts"
import { attempt, history, newPair, say } from "./Talk.ts"

const picture = (width: number, height: number, background = "#4080c0"): Promise<Uint8Array<ArrayBuffer>> =>
  sharp({ create: { width, height, channels: 3, background } }).png().toBuffer().then((bytes) => new Uint8Array(bytes))

const codeOf = (error: unknown): unknown => error instanceof AgentChatError ? error.code : error

const failure = (promise: Promise<unknown>): Promise<unknown> =>
  promise.then(() => assert.fail("it was accepted"), (error: unknown) => error)

const bytesOf = (text: string): Uint8Array<ArrayBuffer> => new TextEncoder().encode(text)

const announce = (bytes: Uint8Array, fields: object = {}) => ({
  filename: "notes.md",
  content_type: "text/markdown",
  size: bytes.length,
  sha256: createHash("sha256").update(bytes).digest("hex"),
  ...fields
})

/** A request with no key. */
const bare = async (method: string, url: string, body?: Uint8Array<ArrayBuffer>): Promise<Answer> => {
  const response = await patient(url, { method, ...(body === undefined ? {} : { body }), redirect: "manual" })
  return new Answer(`${method} signed URL`, response.status, response.headers, await response.text())
}

/** Sends a file of many chunks, breaks its download off in the middle, and fetches the rest with a Range. */
const assertResumes = async (server: Server): Promise<void> => {
  const { alice, bob } = await newPair(server)
  const bytes = new Uint8Array(randomBytes(1_048_583))
  const { attachment_id, upload_url } = (await alice.http.post("/v1/uploads", announce(bytes, { to: bob.handle })))
    .ok(201, Shapes.Upload)
  assert.strictEqual((await fetch(upload_url, { method: "PUT", body: bytes })).status, 200)
  await say(alice, bob, { type: "file", content: { attachment_id } })
  const url = await bob.client.getAttachmentDownloadUrl(attachment_id)

  const broken = await fetch(url)
  const reader = broken.body!.getReader()
  const received: Array<Uint8Array> = []
  let size = 0
  while (size < bytes.length / 2) {
    const { value = assert.fail(`the download ended after ${size} bytes`) } = await reader.read()
    received.push(value)
    size += value.length
  }
  await reader.cancel()
  assert.isBelow(size, bytes.length)

  const rest = await fetch(url, { headers: { range: `bytes=${size}-`, "if-range": broken.headers.get("etag") ?? "" } })
  assert.deepStrictEqual([rest.status, rest.headers.get("content-range")], [
    206,
    `bytes ${size}-${bytes.length - 1}/${bytes.length}`
  ])
  assert.isTrue(Buffer.concat([...received, new Uint8Array(await rest.arrayBuffer())]).equals(bytes))
  const beyond = await fetch(url, { headers: { range: `bytes=${bytes.length}-` } })
  assert.strictEqual(beyond.status, 416, await beyond.text())
}

describe("wire.md J, avatars and files", () => {
  let server: Server

  beforeAll(async () => {
    server = await sharedServer()
  })
  afterAll(() => server.stop())

  const avatarOf = (agent: TestAgent) => `/v1/agents/${agent.handle}/avatar`
  const putAvatar = (agent: TestAgent, raw: Uint8Array<ArrayBuffer>, headers = {}) =>
    agent.http.request("PUT", avatarOf(agent), { raw, headers })

  it("41. an avatar has a URL that serves 512×512 without a key, and is kept for ever", async () => {
    const [agent, other] = await Promise.all([newAgent(server, "pic"), newAgent(server, "looker")])
    const set = (await putAvatar(agent, await picture(300, 200), { "content-type": "text/plain" })).ok(
      200,
      Shapes.AvatarAnswer
    )
    assert.isTrue(set.avatar_url.startsWith(`${server.url}/v1/avatars/`), set.avatar_url)
    const served = await fetch(set.avatar_url)
    assert.strictEqual(served.status, 200)
    assert.strictEqual(served.headers.get("content-type"), "image/webp")
    assert.strictEqual(served.headers.get("cache-control"), "public, max-age=31536000, immutable")
    assert.strictEqual(served.headers.get("x-content-type-options"), "nosniff")
    const { format, height, width } = await sharp(await served.arrayBuffer()).metadata()
    assert.deepStrictEqual([format, width, height], ["webp", 512, 512])
    const etag = served.headers.get("etag") ?? ""
    for (const given of [etag, `W/${etag}`, `"other", W/${etag}`, "*"]) {
      const known = await fetch(set.avatar_url, { headers: { "if-none-match": given } })
      assert.deepStrictEqual([known.status, known.headers.get("etag"), await known.text()], [304, etag, ""], given)
    }
    assert.strictEqual((await fetch(set.avatar_url, { headers: { "if-none-match": `"other"` } })).status, 200)
    // The URL says what is in it, so nothing is read for whoever has it.
    const unread = `${server.url}/v1/avatars/${"0".repeat(64)}`
    assert.strictEqual((await fetch(unread, { headers: { "if-none-match": `"${"0".repeat(64)}"` } })).status, 304)
    for (const given of ['"x"', "*"]) {
      assert.strictEqual(
        (await fetch(`${server.url}/v1/avatars/x`, { headers: { "if-none-match": given } })).status,
        404
      )
    }
    assert.strictEqual((await fetch(unread, { headers: { "if-none-match": "*" } })).status, 404)

    for (const handle of ["me", agent.handle]) {
      assert.propertyVal((await agent.http.get(`/v1/agents/${handle}`)).body, "avatar_url", set.avatar_url)
    }
    assert.propertyVal(await other.client.getAgent(agent.handle), "avatar_url", set.avatar_url)
    assert.deepStrictEqual(await agent.client.setAvatar(agent.handle, await picture(300, 200)), { ...set })
    ;(await bare("GET", `${server.url}/v1/avatars/${"0".repeat(64)}`)).refused(404, "NOT_FOUND")
    ;(await bare("GET", `${server.url}/v1/avatars/..%2F..%2Flock`)).refused(404, "NOT_FOUND")
  })

  it("41. setting or removing another's avatar is refused", async () => {
    const [agent, other] = await Promise.all([newAgent(server, "mine"), newAgent(server, "theirs")])
    const raw = await picture(200, 200)
    ;(await other.http.request("PUT", avatarOf(agent), { raw })).refused(403, "FORBIDDEN")
    ;(await other.http.delete(avatarOf(agent))).refused(403, "FORBIDDEN")
    ;(await other.http.request("PUT", "/v1/agents/nobody-here/avatar", { raw })).refused(403, "FORBIDDEN")
    ;(await server.http().request("PUT", avatarOf(agent), { raw })).refused(401, "UNAUTHORIZED")
    assert.propertyVal((await agent.http.get("/v1/agents/me")).body, "avatar_url", null)
  })

  it("42. a file that is no picture, too small or too large is refused, and changes nothing", async () => {
    const agent = await newAgent(server, "badpic")
    ;(await putAvatar(agent, bytesOf("just text"))).refused(400, "UNSUPPORTED_FORMAT")
    ;(await putAvatar(agent, new Uint8Array())).refused(400, "EMPTY_BODY")
    ;(await putAvatar(agent, await picture(100, 100))).refused(400, "IMAGE_TOO_SMALL")
    ;(await putAvatar(agent, (await picture(300, 300)).slice(0, 40))).refused(400, "DECODE_FAILED")
    ;(await putAvatar(agent, new Uint8Array(5_242_881))).refused(413, "PAYLOAD_TOO_LARGE") // Of 5 MiB exactly it is looked at.
    ;(await putAvatar(agent, new Uint8Array(5_242_880))).refused(400, "UNSUPPORTED_FORMAT")
    // Nor may one without a length be larger.
    const chunked = await fetch(server.url + avatarOf(agent), {
      method: "PUT",
      headers: { authorization: `Bearer ${agent.key}` },
      body: new Blob([new Uint8Array(5_300_000)]).stream(),
      duplex: "half"
    })
    assert.strictEqual(chunked.status, 413)
    assert.propertyVal(await chunked.json(), "code", "PAYLOAD_TOO_LARGE")
    assert.strictEqual(
      codeOf(await failure(agent.client.setAvatar(agent.handle, bytesOf("text")))),
      "UNSUPPORTED_FORMAT"
    )
    assert.propertyVal((await agent.http.get("/v1/agents/me")).body, "avatar_url", null)
  })

  it("43. the sixth accepted write of a minute is refused, refused ones not counted", async () => {
    const agent = await newAgent(server, "often")
    const raw = await picture(200, 200)
    ;(await putAvatar(agent, bytesOf("no picture"))).refused(400, "UNSUPPORTED_FORMAT")
    for (let i = 0; i < 4; i++) (await putAvatar(agent, raw)).ok(200, Shapes.AvatarAnswer)
    ;(await agent.http.delete(avatarOf(agent))).ok(200, Shapes.Confirmation)
    for (let i = 0; i < 2; i++) {
      const refused = await putAvatar(agent, raw)
      refused.refused(429, "RATE_LIMITED")
      assert.match(refused.header("retry-after") ?? "", /^[1-9]\d*$/)
    }
  })

  it("44. a second removal is 404, and so is a removal without an avatar", async () => {
    const agent = await newAgent(server, "bare")
    ;(await agent.http.delete(avatarOf(agent))).refused(404, "NOT_FOUND")
    await putAvatar(agent, await picture(200, 200))
    await agent.client.removeAvatar(agent.handle)
    assert.propertyVal((await agent.http.get("/v1/agents/me")).body, "avatar_url", null)
    ;(await agent.http.delete(avatarOf(agent))).refused(404, "NOT_FOUND")
  })

  const avatarOfGroup = (id: string) => `/v1/groups/${id}/avatar`
  const putGroupAvatar = (agent: TestAgent, id: string, raw: Uint8Array<ArrayBuffer>, headers = {}) =>
    agent.http.request("PUT", avatarOfGroup(id), { raw, headers })

  /** A group of alice's in which bob is, and nothing waits for him. */
  const newGroup = async () => {
    const [alice, bob, carol] = await Promise.all([
      newAgent(server, "alice"),
      newAgent(server, "bob"),
      newAgent(server, "carol")
    ])
    const { add_results, group } = await alice.client.createGroup({
      name: "Band",
      member_handles: [bob.handle, carol.handle]
    })
    const inviteOf = (agent: TestAgent) => add_results.find(({ handle }) => handle === agent.handle)?.invite_id ?? ""
    await bob.client.acceptGroupInvite(inviteOf(bob))
    return { alice, bob, carol, id: group.id, invite: inviteOf(carol) }
  }
  const said = async (agent: TestAgent, id: string) =>
    (await history(agent, id, "?after_seq=0")).map(({ content, sender }) => [content.data, sender])

  it("41, 109. a group's avatar has such a URL too, shown wherever the group is, and a change is said", async () => {
    const { alice, bob, carol, id } = await newGroup()
    const socket = await Socket.hello(server, bob.key)
    const set = (await putGroupAvatar(alice, id, await picture(300, 200), { "content-type": "text/plain" })).ok(
      200,
      Shapes.AvatarAnswer
    )
    const changed = await socket.payload(
      ({ payload, type }) => type === "message.new" && JSON.stringify(payload).includes("avatar_changed"),
      Shapes.Pushed
    )
    assert.deepStrictEqual(changed.content, {
      data: { schema_version: 1, event: "avatar_changed", actor_handle: alice.handle }
    })
    const served = await fetch(set.avatar_url)
    assert.deepStrictEqual([served.status, served.headers.get("content-type")], [200, "image/webp"])
    const { height, width } = await sharp(await served.arrayBuffer()).metadata()
    assert.deepStrictEqual([width, height], [512, 512])

    assert.propertyVal(await bob.client.getGroup(id), "avatar_url", set.avatar_url)
    assert.propertyVal((await carol.client.listGroupInvites())[0] ?? {}, "group_avatar_url", set.avatar_url)
    assert.propertyVal((await bob.client.listConversations())[0] ?? {}, "group_avatar_url", set.avatar_url)
    const event = { schema_version: 1, event: "avatar_changed", actor_handle: alice.handle }
    assert.deepStrictEqual((await said(bob, id)).slice(1), [[event, alice.handle]])
    // The same once more changes nothing; nor does its URL.
    assert.deepStrictEqual(await alice.client.setGroupAvatar(id, await picture(300, 200)), { ...set })
    await alice.client.updateGroup(id, { avatar_url: set.avatar_url })
    assert.strictEqual((await said(bob, id)).length, 2)
    assert.propertyVal(await alice.client.updateGroup(id, { name: "Same picture" }), "avatar_url", set.avatar_url)
    await socket.close()
  })

  it("41, 109. only an admin sets or removes a group's avatar; nobody else learns of the group", async () => {
    const { alice, bob, carol, id } = await newGroup()
    // No picture: who may not is told so before it is looked at.
    for (const raw of [await picture(200, 200), bytesOf("text"), new Uint8Array(), new Uint8Array(5_242_881)]) {
      ;(await putGroupAvatar(bob, id, raw)).refused(403, "FORBIDDEN")
      ;(await putGroupAvatar(carol, id, raw)).refused(404, "GROUP_NOT_FOUND")
      ;(await putGroupAvatar(bob, "grp_AAAAAAAAAAAAAAAA", raw)).refused(404, "GROUP_NOT_FOUND")
    }
    ;(await bob.http.delete(avatarOfGroup(id))).refused(403, "FORBIDDEN")
    ;(await carol.http.delete(avatarOfGroup(id))).refused(404, "GROUP_NOT_FOUND")
    ;(await server.http().request("PUT", avatarOfGroup(id), { raw: bytesOf("text") })).refused(401, "UNAUTHORIZED")
    assert.strictEqual(codeOf(await failure(bob.client.setGroupAvatar(id, await picture(200, 200)))), "FORBIDDEN")
    assert.strictEqual(codeOf(await failure(bob.client.removeGroupAvatar(id))), "FORBIDDEN")
    assert.propertyVal(await bob.client.getGroup(id), "avatar_url", null)

    await alice.client.deleteGroup(id)
    for (const agent of [alice, bob]) {
      ;(await putGroupAvatar(agent, id, bytesOf("text"))).refused(410, "GROUP_DELETED")
      ;(await agent.http.delete(avatarOfGroup(id))).refused(410, "GROUP_DELETED")
    }
    ;(await putGroupAvatar(carol, id, bytesOf("text"))).refused(404, "GROUP_NOT_FOUND")
  })

  it("42, 43, 44. a group's avatar has the rules and the budget of its admin's own", async () => {
    const { alice, bob, id } = await newGroup()
    ;(await putGroupAvatar(alice, id, bytesOf("just text"))).refused(400, "UNSUPPORTED_FORMAT")
    ;(await putGroupAvatar(alice, id, new Uint8Array())).refused(400, "EMPTY_BODY")
    ;(await putGroupAvatar(alice, id, await picture(100, 100))).refused(400, "IMAGE_TOO_SMALL")
    ;(await putGroupAvatar(alice, id, (await picture(300, 300)).slice(0, 40))).refused(400, "DECODE_FAILED")
    ;(await putGroupAvatar(alice, id, new Uint8Array(5_242_881))).refused(413, "PAYLOAD_TOO_LARGE")
    ;(await alice.http.delete(avatarOfGroup(id))).refused(404, "NOT_FOUND")
    assert.strictEqual(codeOf(await failure(alice.client.removeGroupAvatar(id))), "NOT_FOUND")
    const [one, other] = await Promise.all([picture(200, 200, "#ff0000"), picture(200, 200, "#00ff00")])
    const first = await putGroupAvatar(alice, id, one, { "idempotency-key": "pic" })
    const again = await putGroupAvatar(alice, id, one, { "idempotency-key": "pic" })
    assert.deepStrictEqual(again.ok(200, Shapes.AvatarAnswer), first.ok(200, Shapes.AvatarAnswer))
    assert.strictEqual(again.header("idempotent-replay"), "true")
    ;(await putGroupAvatar(alice, id, other, { "idempotency-key": "pic" })).refused(422, "IDEMPOTENCY_KEY_CONFLICT")
    await alice.client.removeGroupAvatar(id)
    ;(await alice.http.delete(avatarOfGroup(id))).refused(404, "NOT_FOUND")
    assert.propertyVal(await bob.client.getGroup(id), "avatar_url", null)
    for (const raw of [one, other]) (await putAvatar(alice, raw)).ok(200, Shapes.AvatarAnswer)
    ;(await putGroupAvatar(alice, id, one)).ok(200, Shapes.AvatarAnswer)
    const refused = await putGroupAvatar(alice, id, other)
    refused.refused(429, "RATE_LIMITED")
    assert.match(refused.header("retry-after") ?? "", /^[1-9]\d*$/)
    ;(await alice.http.delete(avatarOfGroup(id))).refused(429, "RATE_LIMITED")
    const event = { schema_version: 1, event: "avatar_changed", actor_handle: alice.handle }
    assert.deepStrictEqual((await said(bob, id)).slice(1), [1, 2, 3].map(() => [event, alice.handle]))
  })

  it("an avatar with an Idempotency-Key is set once", async () => {
    const agent = await newAgent(server, "keyed")
    const [one, other] = await Promise.all([picture(200, 200, "#ff0000"), picture(200, 200, "#00ff00")])
    const first = await putAvatar(agent, one, { "idempotency-key": "pic" })
    const again = await putAvatar(agent, one, { "idempotency-key": "pic" })
    assert.deepStrictEqual(again.ok(200, Shapes.AvatarAnswer), first.ok(200, Shapes.AvatarAnswer))
    assert.strictEqual(again.header("idempotent-replay"), "true")
    ;(await putAvatar(agent, other, { "idempotency-key": "pic" })).refused(422, "IDEMPOTENCY_KEY_CONFLICT")
  })

  it("125. a file is announced, put, sent and fetched, each URL without a key", async () => {
    const { alice, bob } = await newPair(server)
    const bytes = bytesOf("# Notes\n\nGrüße, and a zero: \0\n")
    const reserved = (await alice.http.post("/v1/uploads", announce(bytes, { to: `@${bob.handle.toUpperCase()}` })))
      .ok(201, Shapes.Upload)
    assert.match(reserved.attachment_id, /^att_[A-Za-z0-9_-]{16}$/)
    assert.isTrue(reserved.upload_url.startsWith(`${server.url}/v1/files/`))
    const put = await bare("PUT", reserved.upload_url, bytes)
    put.ok(200, Shapes.Confirmation)
    ;(await bare("PUT", reserved.upload_url, bytes)).refused(409, "ALREADY_UPLOADED")

    const content = { text: "see the file", attachment_id: reserved.attachment_id }
    const sent = await say(alice, bob, { type: "file", content })
    assert.deepStrictEqual([sent.type, sent.content], ["file", content])
    assert.deepStrictEqual((await history(bob, sent.conversation_id))[0]?.content, content)

    for (const reader of [alice, bob]) {
      const found = await reader.http.get(`/v1/attachments/${reserved.attachment_id}`)
      assert.deepStrictEqual([found.status, found.text], [302, ""])
      const location = found.header("location") ?? ""
      for (let i = 0; i < 2; i++) {
        const file = await fetch(location)
        assert.strictEqual(file.status, 200)
        assert.strictEqual(file.headers.get("content-type"), "text/markdown")
        assert.strictEqual(file.headers.get("x-content-type-options"), "nosniff")
        assert.strictEqual(
          file.headers.get("content-disposition"),
          "attachment; filename=\"notes.md\"; filename*=UTF-8''notes.md"
        )
        assert.deepStrictEqual(new Uint8Array(await file.arrayBuffer()), bytes)
      } // A download is no upload, and a changed one is nothing.

      ;(await bare("PUT", location, bytes)).refused(403, "FORBIDDEN")
      ;(await bare("GET", `${location}A`)).refused(403, "FORBIDDEN")
    }
    ;(await bare("GET", reserved.upload_url)).refused(403, "FORBIDDEN")
  })

  it("125. the published client does the same, and the bytes must be the announced ones", async () => {
    const { alice, bob } = await newPair(server)
    const bytes = bytesOf("from the client")
    const { attachment_id, upload_url } = await alice.client.createUpload({
      to: bob.handle,
      filename: "größe.txt",
      content_type: "text/plain",
      size: bytes.length,
      sha256: createHash("sha256").update(bytes).digest("hex")
    })
    ;(await bare("PUT", upload_url, bytesOf("from the clienT"))).refused(400, "CHECKSUM_MISMATCH")
    ;(await bare("PUT", upload_url, bytesOf("from the"))).refused(400, "SIZE_MISMATCH")
    ;(await bare("PUT", upload_url, bytesOf("from the client, and more"))).refused(400, "SIZE_MISMATCH")
    // Not the last character: of that one base64 may leave bits unread.
    const forged = upload_url.replace(/.(?=.{4}$)/, (one) => one === "A" ? "B" : "A")
    ;(await bare("PUT", forged, bytes)).refused(403, "FORBIDDEN")
    ;(await bare("PUT", upload_url, bytes)).ok(200, Shapes.Confirmation)
    await alice.client.sendMessage({ to: bob.handle, type: "file", content: { attachment_id } })
    const file = await fetch(await bob.client.getAttachmentDownloadUrl(attachment_id))
    assert.strictEqual(await file.text(), "from the client")
    assert.include(file.headers.get("content-disposition"), "filename*=UTF-8''gr%C3%B6%C3%9Fe.txt")
  })

  it("125. a download goes on where it broke off: one range, by the tag of the file", async () => {
    const { alice, bob } = await newPair(server)
    const bytes = bytesOf("0123456789")
    const fields = { to: bob.handle, filename: "a.csv", content_type: 'Text/CSV; Header=absent; CharSet="UTF-8"' }
    const { attachment_id, upload_url } = (await alice.http.post("/v1/uploads", announce(bytes, fields))).ok(
      201,
      Shapes.Upload
    )
    ;(await bare("PUT", upload_url, bytes)).ok(200, Shapes.Confirmation)
    const info = (await bob.http.get(`/v1/attachments/${attachment_id}/info`)).ok(200, Shapes.FileInfo)
    assert.strictEqual(info.content_type, "text/csv; charset=utf-8")
    const url = await bob.client.getAttachmentDownloadUrl(attachment_id)
    const get = async (headers: Record<string, string>, method = "GET") => {
      const answer = await fetch(url, { method, headers })
      const of = (name: string) => answer.headers.get(name)
      return {
        of,
        status: answer.status,
        range: of("content-range"),
        length: of("content-length"),
        text: await answer.text()
      }
    }
    const whole = await get({})
    const etag = whole.of("etag") ?? ""
    assert.deepStrictEqual([whole.status, whole.text, whole.length, whole.range], [200, "0123456789", "10", null])
    assert.deepStrictEqual([whole.of("accept-ranges"), whole.of("content-type")], ["bytes", "text/csv; charset=utf-8"])
    assert.match(etag, /^"[^"]+"$/)

    const parts = [["bytes=0-3", "0123", "0-3"], ["bytes=4-", "456789", "4-9"], ["bytes=-2", "89", "8-9"], [
      "bytes=8-99",
      "89",
      "8-9"
    ]] as const
    for (const [range, text, shown] of parts) {
      const part = await get({ range, "if-range": etag })
      assert.deepStrictEqual([part.status, part.text, part.length, part.range], [
        206,
        text,
        String(text.length),
        `bytes ${shown}/10`
      ])
      assert.deepStrictEqual([part.of("etag"), part.of("content-type"), part.of("x-content-type-options")], [
        etag,
        "text/csv; charset=utf-8",
        "nosniff"
      ])
    }
    for (
      const headers of [{ range: "bytes=0-1,3-4" }, { range: "bytes=3-1" }, {
        range: "bytes=2-",
        "if-range": `"other"`
      }]
    ) {
      const all = await get(headers)
      assert.deepStrictEqual([all.status, all.text, all.range], [200, "0123456789", null], JSON.stringify(headers))
    }
    const beyond = await get({ range: "bytes=10-" })
    assert.deepStrictEqual([beyond.status, beyond.range, JSON.parse(beyond.text).code], [
      416,
      "bytes */10",
      "RANGE_NOT_SATISFIABLE"
    ])
    const head = await get({ range: "bytes=2-3" }, "HEAD")
    assert.deepStrictEqual([head.status, head.length, head.text, head.of("etag")], [200, "10", "", etag])
    const known = await get({ "if-none-match": `W/${etag}`, range: "bytes=2-3" })
    assert.deepStrictEqual([known.status, known.text], [304, ""])
    assert.strictEqual((await fetch(`${url}x`, { headers: { range: "bytes=0-1" } })).status, 403)
  })

  it("125. a large download that breaks off in the middle is completed with a Range", () => assertResumes(server))

  it("125. a file with the longest name has a URL that works", async () => {
    const { alice, bob } = await newPair(server)
    const filename = `${"\u{1F4C4}".repeat(251)}.txt`
    const bytes = new TextEncoder().encode("under a long name")
    const { attachment_id, upload_url } = (await alice.http.post(
      "/v1/uploads",
      announce(bytes, { to: bob.handle, filename, content_type: "text/plain; charset=utf-8" })
    )).ok(201, Shapes.Upload)
    assert.strictEqual((await fetch(upload_url, { method: "PUT", body: bytes })).status, 200)
    await say(alice, bob, { type: "file", content: { attachment_id } })
    const answer = await fetch(await bob.client.getAttachmentDownloadUrl(attachment_id))
    assert.deepStrictEqual([answer.status, await answer.text()], [200, "under a long name"])
  })

  it("125. the largest file that may be sent goes through", async () => {
    const { alice, bob } = await newPair(server)
    const bytes = new Uint8Array(26_214_400).fill(7)
    const { attachment_id, upload_url } = (await alice.http.post("/v1/uploads", announce(bytes, { to: bob.handle })))
      .ok(201, Shapes.Upload)
    ;(await bare("PUT", upload_url, bytes)).ok(200, Shapes.Confirmation)
    const file = await fetch(await bob.client.getAttachmentDownloadUrl(attachment_id))
    assert.strictEqual(
      createHash("sha256").update(new Uint8Array(await file.arrayBuffer())).digest("hex"),
      createHash("sha256").update(bytes).digest("hex")
    ) // It is most of the quota of this server: a second one is more than that.
    ;(await alice.http.post("/v1/uploads", announce(bytes, { to: bob.handle }))).refused(413, "QUOTA_EXCEEDED")
    ;(await bob.http.post("/v1/uploads", announce(bytes, { to: alice.handle }))).ok(201, Shapes.Upload)
  })

  it("126. a third party finds nothing, another recipient is the wrong scope, and bytes must be there", async () => {
    const { alice, bob } = await newPair(server)
    const carol = await newAgent(server, "carol")
    const bytes = bytesOf("for bob alone")
    const { attachment_id, upload_url } = (await alice.http.post("/v1/uploads", announce(bytes, { to: bob.handle })))
      .ok(201, Shapes.Upload)
    const path = `/v1/attachments/${attachment_id}`
    const fields = { type: "file", content: { attachment_id } }
    const unknown = await carol.http.get("/v1/attachments/att_AAAAAAAAAAAAAAAA")
    unknown.refused(404, "NOT_FOUND")

    const early = (await attempt(alice, bob, fields)).refused(409, "ATTACHMENT_NOT_READY")
    assert.deepStrictEqual(early.details, { reason: "missing" })
    for (const reader of [alice, bob, carol]) assert.strictEqual((await reader.http.get(path)).text, unknown.text)
    ;(await bare("PUT", upload_url, bytes)).ok(200, Shapes.Confirmation)
    ;(await attempt(alice, carol, fields)).refused(400, "ATTACHMENT_WRONG_SCOPE")
    ;(await attempt(bob, alice, fields)).refused(404, "ATTACHMENT_NOT_FOUND")
    ;(await attempt(carol, bob, fields)).refused(404, "ATTACHMENT_NOT_FOUND")
    const absent = { content: { attachment_id: "att_AAAAAAAAAAAAAAAA" } }
    ;(await attempt(alice, bob, absent)).refused(404, "ATTACHMENT_NOT_FOUND")
    assert.strictEqual((await carol.http.get(path)).text, unknown.text)
    ;(await server.http().get(path)).refused(401, "UNAUTHORIZED")
    assert.strictEqual((await say(alice, bob, fields)).seq, 3)
  })

  it("218. info gives the name of the download, type and size to those who may download, and one answer for everything else", async () => {
    const { alice, bob } = await newPair(server)
    const carol = await newAgent(server, "carol")
    const bytes = bytesOf("about this file")
    const fields = { to: bob.handle, filename: "../../Gr\u202eüße.pdf/ ", content_type: "application/pdf" }
    const { attachment_id, upload_url } = (await alice.http.post("/v1/uploads", announce(bytes, fields))).ok(
      201,
      Shapes.Upload
    )
    const path = `/v1/attachments/${attachment_id}/info`
    const unknown = await carol.http.get("/v1/attachments/att_AAAAAAAAAAAAAAAA/info")
    unknown.refused(404, "NOT_FOUND")
    for (const reader of [alice, bob, carol])
      assert.strictEqual((await reader.http.get(path)).text, unknown.text, "before the bytes are stored")
    ;(await bare("PUT", upload_url, bytes)).ok(200, Shapes.Confirmation)
    for (const reader of [alice, bob]) {
      assert.deepStrictEqual((await reader.http.get(path)).ok(200, Shapes.FileInfo), {
        filename: "Grüße.pdf",
        content_type: "application/pdf",
        size: bytes.length
      })
    }
    assert.include(
      (await fetch(await bob.client.getAttachmentDownloadUrl(attachment_id))).headers.get("content-disposition"),
      encodeURIComponent("Grüße.pdf")
    )
    const foreign = await carol.http.get(path)
    assert.strictEqual(foreign.text, unknown.text)
    assert.strictEqual(foreign.text, (await carol.http.get(`/v1/attachments/${attachment_id}`)).text)
    ;(await server.http().get(path)).refused(401, "UNAUTHORIZED")
  })

  it("125, 126, 218. a file for a group is its members', later ones too, and nobody else's", async () => {
    const [alice, bob, carol, dave] = await Promise.all(
      ["alice", "bob", "carol", "dave"].map((name) => newAgent(server, name))
    )
    if (alice === undefined || bob === undefined || carol === undefined || dave === undefined) return assert.fail()
    const created = await alice.http.post("/v1/groups", { name: "readers", member_handles: [bob.handle] })
    assert.strictEqual(created.status, 200, `${created}`)
    const group = (created.body as { readonly group: { readonly id: string } }).group.id
    const join = async (agent: TestAgent) => {
      const [invite] = await agent.client.listGroupInvites()
      await agent.client.acceptGroupInvite(invite?.id ?? "")
    }
    const bytes = bytesOf("for all of us")
    const fields = announce(bytes, { conversation_id: group })
    ;(await bob.http.post("/v1/uploads", fields)).refused(404, "GROUP_NOT_FOUND")
    await join(bob)

    const { attachment_id, upload_url } = (await alice.http.post("/v1/uploads", fields)).ok(201, Shapes.Upload)
    const send = (from: TestAgent, id = attachment_id) =>
      from.http.post("/v1/messages", {
        conversation_id: group,
        client_msg_id: `${from.handle}-${Math.random()}`,
        type: "file",
        content: { attachment_id: id }
      })
    ;(await send(alice)).refused(409, "ATTACHMENT_NOT_READY")
    ;(await bare("PUT", upload_url, bytes)).ok(200, Shapes.Confirmation)
    assert.strictEqual((await send(alice)).status, 201)
    ;(await send(bob)).refused(404, "ATTACHMENT_NOT_FOUND")
    ;(await attempt(alice, bob, { content: { attachment_id } })).refused(400, "ATTACHMENT_WRONG_SCOPE")
    const direct = (await alice.http.post("/v1/uploads", announce(bytes, { to: bob.handle }))).ok(201, Shapes.Upload)
    ;(await send(alice, direct.attachment_id)).refused(400, "ATTACHMENT_WRONG_SCOPE")

    const path = `/v1/attachments/${attachment_id}`
    assert.strictEqual(
      await (await fetch(await bob.client.getAttachmentDownloadUrl(attachment_id))).text(),
      "for all of us"
    )
    await alice.client.addGroupMember(group, carol.handle)
    ;(await carol.http.get(path)).refused(404, "NOT_FOUND")
    await join(carol)
    assert.strictEqual((await carol.http.get(path)).status, 302)
    assert.strictEqual((await carol.http.get(`${path}/info`)).ok(200, Shapes.FileInfo).size, bytes.length)
    ;(await dave.http.get(path)).refused(404, "NOT_FOUND")
    await bob.client.leaveGroup(group)
    ;(await bob.http.get(path)).refused(404, "NOT_FOUND")
    ;(await bob.http.get(`${path}/info`)).refused(404, "NOT_FOUND")
    ;(await bob.http.post("/v1/uploads", fields)).refused(404, "GROUP_NOT_FOUND")
    await alice.client.deleteGroup(group)
    for (const former of [bob, carol]) {
      for (const asked of [path, `${path}/info`]) {
        assert.deepInclude((await former.http.get(asked)).refused(410, "GROUP_DELETED").details, { group_id: group })
      }
    }
    ;(await dave.http.get(path)).refused(404, "NOT_FOUND")
    ;(await alice.http.post("/v1/uploads", fields)).refused(410, "GROUP_DELETED")
    ;(await dave.http.post("/v1/uploads", fields)).refused(404, "GROUP_NOT_FOUND")
    assert.strictEqual((await alice.http.get(path)).status, 302)
  })

  it("127. types, sizes, digests and targets that are not allowed are 400", async () => {
    const [alice, bob] = await Promise.all([newAgent(server, "alice"), newAgent(server, "bob")])
    const bytes = bytesOf("x")
    const refused = async (fields: object, status = 400, code = "VALIDATION_ERROR") =>
      (await alice.http.post("/v1/uploads", announce(bytes, { to: bob.handle, ...fields }))).refused(status, code)
    for (
      const fields of [
        { content_type: "text/html" },
        { content_type: "image/svg+xml" },
        { content_type: "text/plain; charset" },
        { content_type: "text/plain, text/html" },
        { size: 0 },
        { size: 26_214_401 },
        { size: 1.5 },
        { sha256: "0".repeat(63) },
        { sha256: "A".repeat(64) },
        { sha256: `${"0".repeat(64)}\n` },
        { filename: "" },
        { filename: "x".repeat(256) },
        { filename: "a\0b" },
        { to: undefined },
        { conversation_id: "grp_AAAAAAAAAAAAAAAA" },
        { to: alice.handle }
      ]
    ) await refused(fields)
    for (
      const [content_type, kept] of [["IMAGE/PNG", "image/png"], [
        "application/json;charset=utf-8",
        "application/json"
      ]] as const
    ) {
      const { attachment_id, upload_url } =
        (await alice.http.post("/v1/uploads", announce(bytes, { to: bob.handle, content_type }))).ok(201, Shapes.Upload)
      ;(await bare("PUT", upload_url, bytes)).ok(200, Shapes.Confirmation)
      assert.strictEqual(
        (await fetch(await bob.client.getAttachmentDownloadUrl(attachment_id))).headers.get("content-type"),
        kept
      )
    }
    await refused({ to: "nobody-here" }, 404, "AGENT_NOT_FOUND")
    await refused({ to: undefined, conversation_id: "grp_AAAAAAAAAAAAAAAA" }, 404, "GROUP_NOT_FOUND")
    ;(await bob.http.post(`/v1/contacts/${alice.handle}/block`)).ok(200, Shapes.Confirmation)
    await refused({}, 403, "BLOCKED")
  })
})

describe("wire.md J, avatars and files on S3", () => {
  let directory: string
  let store: S3rver
  let server: Server

  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), "parley-s3-"))
    store = new S3rver({
      port: 0,
      address: "127.0.0.1",
      silent: true,
      directory,
      configureBuckets: [{ name: "parley" }]
    })
    const { port } = await store.run()
    server = await startServer({
      env: {
        S3_BUCKET: "parley",
        S3_ENDPOINT: `http://127.0.0.1:${port}`,
        S3_ACCESS_KEY_ID: "S3RVER",
        S3_SECRET_ACCESS_KEY: "S3RVER",
        S3_FORCE_PATH_STYLE: "on"
      }
    })
  })
  afterAll(async () => {
    await server.stop()
    // The last test has done so already.
    await store.close().catch(() => undefined)
    await rm(directory, { recursive: true, force: true })
  })

  it("125, 126. the bytes go past the server, are checked at first use, and do not change after", async () => {
    const { alice, bob } = await newPair(server)
    const bytes = bytesOf("over the bucket")
    const { attachment_id, upload_url } = (await alice.http.post("/v1/uploads", announce(bytes, { to: bob.handle })))
      .ok(201, Shapes.Upload)
    assert.isFalse(upload_url.startsWith(server.url))
    const put = async (text: string) =>
      assert.strictEqual((await fetch(upload_url, { method: "PUT", body: bytesOf(text) })).status, 200)
    const fields = { type: "file", content: { attachment_id } }
    const reasonNow = async () => (await attempt(alice, bob, fields)).refused(409, "ATTACHMENT_NOT_READY").details
    assert.deepStrictEqual(await reasonNow(), { reason: "missing" })
    await put("over the buckeT")
    assert.deepStrictEqual(await reasonNow(), { reason: "checksum" })
    await put("over the bucket, and more")
    assert.deepStrictEqual(await reasonNow(), { reason: "size" })
    ;(await bob.http.get(`/v1/attachments/${attachment_id}`)).refused(404, "NOT_FOUND")
    await put("over the bucket")
    await say(alice, bob, fields)
    await put("over the buckeT")
    const file = await fetch(await bob.client.getAttachmentDownloadUrl(attachment_id))
    assert.strictEqual(await file.text(), "over the bucket")
    assert.strictEqual(file.headers.get("content-type"), "text/markdown")
    assert.match(file.headers.get("content-disposition") ?? "", /^attachment; filename="notes.md"/)
    ;(await server.http().get("/v1/files/anything")).refused(404, "NOT_FOUND")
  })

  it("125. a large download from the bucket that breaks off in the middle is completed with a Range", () =>
    assertResumes(server))

  it("41. an avatar is served from the bucket, by this server", async () => {
    const agent = await newAgent(server, "pic")
    const set = await agent.client.setAvatar(agent.handle, await picture(200, 200))
    assert.isTrue(set.avatar_url.startsWith(server.url))
    const { height, width } = await sharp(await (await fetch(set.avatar_url)).arrayBuffer()).metadata()
    assert.deepStrictEqual([width, height], [512, 512])
  })

  it("163. a file that comes inline by MCP goes through the bucket, and comes back inline or as a link to the bucket", async () => {
    const { alice, bob } = await newPair(server)
    const [from, to] = await Promise.all([connect(server, alice), connect(server, bob)])
    const bytes = Buffer.from("inline, over the bucket")
    const file = { to: bob.handle, filename: "notes.md", content_type: "Text/Markdown; charset=UTF-8" }
    const { attachment_id } = await granted(from, "agentchat_send_file", { ...file, data: bytes.toString("base64") })
    const { result, value } = await call(to, "agentchat_get_file", { attachment_id })
    assert.deepStrictEqual([value["filename"], value["size"], value["inline"]], ["notes.md", bytes.length, true])
    assert.strictEqual(value["content_type"], "text/markdown; charset=utf-8")
    const [embedded] = result.content.flatMap((block) => block.type === "resource" ? [block.resource] : [])
    assert.strictEqual((embedded as { readonly blob?: string }).blob, bytes.toString("base64"))
    assert.strictEqual(
      await (await fetch(await bob.client.getAttachmentDownloadUrl(attachment_id))).text(),
      bytes.toString()
    )

    const large = Buffer.alloc(1_048_577, "more than goes inline ")
    const announced = await granted(from, "agentchat_send_file", {
      ...file,
      size: large.length,
      sha256: createHash("sha256").update(large).digest("hex")
    })
    assert.isFalse(announced["upload"].upload_url.startsWith(server.url))
    const early = await refused(from, "agentchat_send_file", {
      to: bob.handle,
      attachment_id: announced["attachment_id"]
    }, "ATTACHMENT_NOT_READY")
    assert.deepStrictEqual(early["details"], { reason: "missing" })
    assert.strictEqual((await fetch(announced["upload"].upload_url, { method: "PUT", body: large })).status, 200)
    await granted(from, "agentchat_send_file", { to: bob.handle, attachment_id: announced["attachment_id"] })
    const linked = await call(to, "agentchat_get_file", { attachment_id: announced["attachment_id"] })
    const [link] = linked.result.content.flatMap((block) => block.type === "resource_link" ? [block.uri] : [])
    assert.isFalse(linked.value["inline"])
    assert.deepStrictEqual(Buffer.from(await (await fetch(link ?? "")).arrayBuffer()), large)
    await Promise.all([from.close(), to.close()])
  })

  it("requests for files get 503 while the store is away, and no other requests do", async () => {
    const { alice, bob } = await newPair(server)
    const mcp = await connect(server, alice)
    const bytes = bytesOf("never arrives")
    const { attachment_id } = (await alice.http.post("/v1/uploads", announce(bytes, { to: bob.handle })))
      .ok(201, Shapes.Upload)
    await store.close()
    ;(await attempt(alice, bob, { content: { attachment_id } })).refused(503, "STORAGE_UNAVAILABLE")
    const inline = {
      to: bob.handle,
      filename: "a.md",
      content_type: "text/markdown",
      data: Buffer.from(bytes).toString("base64")
    }
    await refused(mcp, "agentchat_send_file", inline, "STORAGE_UNAVAILABLE")
    await granted(mcp, "agentchat_send_message", { to: bob.handle, text: "without a file" })
    await mcp.close()
    await say(alice, bob)
  })
})
