import { ArchiveRefused, exportAgent, type ExportSource } from "#domain/archives/AgentExport"
import { AgentPages } from "#domain/archives/AgentPages"
import { BlobParts } from "#infrastructure/files/BlobParts"
import { Ids } from "#infrastructure/platform/Ids"
import { afterAll, assert, beforeAll, describe, it, layer } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { createHash } from "node:crypto"
import { appendFile, mkdtemp, readdir, readFile, rm, truncate, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import sharp from "sharp"
import * as Tables from "../../src/Tables.ts"
import { say } from "../contract/Talk.ts"
import { adminHere } from "../support/Admin.ts"
import { layerPgliteTest } from "../support/Databases.ts"
import { newAgent as insertAgent } from "../support/Modules.ts"
import { newAgent, type Server, sharedServer, type TestAgent } from "../support/Server.ts"

const FILE = Buffer.alloc(2_500_000, "a file of some parts ")
const sha256 = createHash("sha256").update(FILE).digest("hex")
const PICTURE = createHash("sha256").update("pic").digest("hex")

/** What ends a line for some readers, but not in JSON. */
const SEPARATORS = "\u2028 and \u2029"

/** A store with three files, of which one is damaged, a picture, and nothing else. */
const store = Layer.succeed(
  BlobParts,
  BlobParts.of({
    read: (name, from, length) =>
      Effect.succeed(
        name === "files/att_1"
          ? { size: FILE.length, bytes: FILE.subarray(from, from + length) }
          : name === "files/att_3" || name === "files/att_5"
          ? { size: 4, bytes: Buffer.from("some").subarray(from) }
          : name === `avatars/${PICTURE}`
          ? { size: 3, bytes: Buffer.from("pic").subarray(from) }
          : undefined
      )
  })
)

class Broken extends Error {}

interface Line {
  readonly [name: string]: unknown
}
const linesOf = async (folder: string, name: string): Promise<ReadonlyArray<Line>> =>
  (await readFile(join(folder, `${name}.jsonl`), "utf8")).split("\n").filter((line) => line !== "").map((line) =>
    JSON.parse(line) as Line
  )

/** All that an export has but the times at which it was made. */
const contentsOf = async (folder: string): Promise<ReadonlyArray<readonly [string, string]>> => {
  const names = (await readdir(folder, { recursive: true, withFileTypes: true })).filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name)).sort()
  return Promise.all(names.map(async (name) => {
    const text = (await readFile(name)).toString("latin1")
    const hash = createHash("sha256").update(text.replaceAll(/"(began|ended)_at": "[^"]*"/g, "")).digest("hex")
    return [name.slice(folder.length), hash] as const
  }))
}

layer(Layer.provideMerge(AgentPages.layer, Layer.mergeAll(layerPgliteTest, store, Ids.layer, Tables.layer)))(
  "the export of an agent",
  (it) => {
    it.effect("an export continues where it was interrupted, and its result is the same", () =>
      Effect.gen(function*() {
        const sql = yield* SqlClient.SqlClient
        const pages = yield* AgentPages
        const [ada, bob] = [yield* insertAgent("ada"), yield* insertAgent("bob")]
        yield* sql`UPDATE agents SET avatar_key = ${PICTURE} WHERE id = ${ada.id}`
        yield* sql`INSERT INTO conversations (id, kind, created_at, initiator_id) VALUES ('conv_1', 'direct', 1, ${ada.id}), ('grp_1', 'group', 1, NULL)`
        yield* sql`INSERT INTO participants (agent_id, conversation_id, counterparty_id) VALUES (${ada.id}, 'conv_1', ${bob.id})`
        yield* sql`
        INSERT INTO messages (conversation_id, seq, id, sender_id, client_msg_id, type, content, metadata, created_at)
        SELECT 'conv_1', i, 'msg_' || i, CASE WHEN i % 2 = 0 THEN ${ada.id} ELSE ${bob.id} END, 'cm-' || i, 'text',
          ${`{"text":"a \\u0000 in it, ${SEPARATORS}","attachment_id":"att_1"}`}, '{}', i
        FROM generate_series(1, 500) i`
        yield* sql`
        INSERT INTO envelopes (recipient_id, no, conversation_id, seq)
        SELECT ${ada.id}, i, 'conv_1', i FROM generate_series(1, 500, 2) i`
        yield* sql`
        INSERT INTO attachments (id, uploader_id, recipient_id, filename, content_type, size, sha256, created_at, stored_at)
        VALUES ('att_1', ${bob.id}, ${ada.id}, ${`a ${SEPARATORS}.txt`}, 'text/plain', ${FILE.length}, ${sha256}, 1, 2),
          ('att_2', ${ada.id}, ${bob.id}, 'gone.txt', 'text/plain', 1, 'x', 1, 2),
          ('att_3', ${ada.id}, ${bob.id}, 'unsent.txt', 'text/plain', 4, ${
          createHash("sha256").update("some").digest("hex")
        }, 1, NULL),
          ('att_4', ${ada.id}, ${bob.id}, 'announced.txt', 'text/plain', 4, 'x', 1, NULL),
          ('att_5', ${ada.id}, ${bob.id}, ${`damaged ${SEPARATORS}.txt`}, 'text/plain', 4, 'other', 1, 2)`
        // Two groups: of one it was a member once.
        yield* sql`INSERT INTO groups (id, name, creator_id, member_count, created_at) VALUES ('grp_1', 'Harbour', ${ada.id}, 1, 1)`
        yield* sql`INSERT INTO group_members (group_id, agent_id, role, joined_at, joined_seq, left_at) VALUES ('grp_1', ${ada.id}, 'admin', 1, 0, 9)`
        yield* sql`
        INSERT INTO messages (conversation_id, seq, id, sender_id, client_msg_id, type, content, metadata, created_at)
        SELECT 'grp_1', i, 'sys_' || i, CASE WHEN i = 4100 THEN ${ada.id} ELSE ${bob.id} END, 'sys_' || i, 'system', '{}', '{}', i
        FROM generate_series(1, 4500) i`

        const folder = yield* Effect.promise(() => mkdtemp(join(tmpdir(), "parley-export-")))
        let calls = 0
        let most = 0
        const source = (breaksAt: number): ExportSource<Broken> => {
          const counted = <A, E>(ask: Effect.Effect<A, E>) =>
            Effect.suspend(() => calls++ === breaksAt ? Effect.fail(new Broken()) : Effect.orDie(ask))
          return {
            begin: Effect.succeed({ agent: ada.id, handle: "ada", schema: "1" }),
            page: (agent, file, after) =>
              counted(pages.page(agent, file, after)).pipe(Effect.tap((page) =>
                Effect.sync(() => {
                  most = Math.max(most, page?.rows.length ?? 0)
                })
              )),
            part: (agent, file, from) =>
              counted(
                Effect.map(
                  pages.part(agent, file, from),
                  (part) => part === undefined ? null : { ...part, bytes: part.bytes.toString("base64") }
                )
              )
          }
        }
        const [whole, broken] = [join(folder, "whole"), join(folder, "broken")]
        const once = yield* exportAgent(whole, source(-1))
        const needed = calls
        assert.deepInclude(once, { handle: "ada", files: 3, missing: 2, damaged: 1, resumed: false })
        const expected = yield* Effect.promise(() => contentsOf(whole))
        const read = (name: string) => Effect.promise(() => linesOf(whole, name))
        assert.strictEqual((yield* read("messages_sent")).length, 250)
        assert.deepStrictEqual((yield* read("messages_sent"))[0]?.["content"], {
          text: `a \0 in it, ${SEPARATORS}`,
          attachment_id: "att_1"
        })
        assert.deepStrictEqual(
          (yield* read("files")).map(({ damaged, id, missing, name }) => [id, name, missing, damaged]),
          [
            ["avatar", "avatar.webp", false, undefined],
            ["att_2", undefined, true, undefined],
            ["att_3", "unsent.txt", false, undefined],
            ["att_5", undefined, true, true],
            ["att_1", `a ${SEPARATORS}.txt`, false, undefined]
          ]
        )
        assert.deepStrictEqual(
          (yield* read("messages_received")).map(({ no }) => no),
          Array.from({ length: 250 }, (_, i) => 2 * i + 1)
        )
        assert.deepStrictEqual((yield* read("group_events")).map(({ id }) => id), ["sys_4100"])
        assert.deepInclude((yield* read("groups"))[0], { group_id: "grp_1", left_at: "1970-01-01T00:00:00.009Z" })
        assert.isAtMost(most, 500)
        assert.isTrue((yield* Effect.promise(() => readFile(join(whole, "files/att_1")))).equals(FILE))

        // Broken off at each call in turn, and each time what was under way is half written.
        let ended = false
        for (let round = 0; !ended && round < needed; round++) {
          calls = 0
          // Now and then after more: of a file that is damaged or was never uploaded nothing is kept until it is known.
          ended = (yield* Effect.exit(exportAgent(broken, source(round % 3 === 0 ? 4 : 1))))._tag === "Success"
          const file = (yield* Effect.promise(() =>
            readdir(broken)
          )).filter((name) => name.endsWith(".jsonl"))[round % 3]
          if (
            file !== undefined &&
            !JSON.parse(yield* Effect.promise(() => readFile(join(broken, "manifest.json"), "utf8"))).files[file]?.whole
          ) {
            yield* Effect.promise(() => appendFile(join(broken, file), '{"half":'))
          }
          // Parts of another picture, and of a file that the store had then.
          if (round === 0)
            yield* Effect.promise(() =>
              Promise.all(["avatar", "att_2"].map((id) => writeFile(join(broken, `files/${id}.part`), "old")))
            )
        }
        assert.isTrue(ended)
        assert.deepStrictEqual(yield* Effect.promise(() => contentsOf(broken)), expected)

        // What a power failure leaves: files that are shorter than the manifest says.
        for (const names of [["messages_sent.jsonl", "contacts.jsonl"], ["files/att_1"], ["files.jsonl"]]) {
          yield* Effect.promise(async () => {
            const manifest = join(broken, "manifest.json")
            await writeFile(
              manifest,
              (await readFile(manifest, "utf8")).replace(`"complete": true`, `"complete": false`)
            )
            for (const name of names) {
              if (name === "contacts.jsonl") await rm(join(broken, name))
              else await truncate(join(broken, name), 100)
            }
          })
          assert.deepInclude(
            yield* exportAgent(broken, source(-1)),
            { files: 3, missing: 2, resumed: true },
            names.join(", ")
          )
          assert.deepStrictEqual(yield* Effect.promise(() => contentsOf(broken)), expected, names.join(", "))
        }

        // Two at once: the second is refused, and nothing of the first is changed.
        const twice = join(folder, "twice")
        const second = Effect.provide(Effect.flip(exportAgent(twice, source(-1))), Tables.layer)
        let refused: ArchiveRefused | Broken | undefined
        const { page, ...rest } = source(-1)
        yield* exportAgent(twice, {
          ...rest,
          page: (...given) =>
            Effect.andThen(
              refused === undefined ? Effect.map(second, (error) => void (refused = error)) : Effect.void,
              page(...given)
            )
        })
        assert.include(refused?.message, "Another export writes to")
        assert.deepStrictEqual(yield* Effect.promise(() => contentsOf(twice)), expected)

        const refusal = yield* Effect.flip(exportAgent(broken, source(-1)))
        assert.include((refusal as ArchiveRefused).message, "complete export of ada already")
        yield* Effect.promise(() => writeFile(join(folder, "something"), ""))
        assert.include(
          ((yield* Effect.flip(exportAgent(folder, source(-1)))) as ArchiveRefused).message,
          "is not empty"
        )
        yield* Effect.promise(() => rm(folder, { recursive: true }))
      }))
  }
)

describe("parley admin export", () => {
  let server: Server
  let folder: string
  let ada: TestAgent
  let bob: TestAgent

  beforeAll(async () => {
    server = await sharedServer()
    folder = await mkdtemp(join(tmpdir(), "parley-export-"))
    ada = await newAgent(server, "ada", { display_name: "Ada of the harbour", description: "Watches ships" })
    bob = await newAgent(server, "bob")
  })
  afterAll(async () => {
    await rm(folder, { recursive: true, force: true })
    await server.stop()
  })

  it("exports everything of an agent's life, and no secret, nor who blocked or reported the agent", async () => {
    const ok = async (answer: Promise<{ readonly status: number }>) => {
      const { status } = await answer
      assert.isBelow(status, 300, String(await answer))
    }
    const sent = await say(ada, bob, { content: { text: "What Ada said" }, metadata: { mood: "calm" } })
    const received = await say(bob, ada, { content: { text: "What Bob said" } })
    const bytes = Buffer.from("ship,tons\nHeron,12\n")
    const { attachment_id, upload_url } = (await ada.http.post("/v1/uploads", {
      to: bob.handle,
      filename: "ships.csv",
      content_type: "text/csv",
      size: bytes.length,
      sha256: createHash("sha256").update(bytes).digest("hex")
    })).body as { attachment_id: string; upload_url: string }
    await ok(fetch(upload_url, { method: "PUT", body: bytes }))
    await say(ada, bob, { type: "file", content: { attachment_id } })
    await ok(ada.http.patch(`/v1/contacts/${bob.handle}`, { notes: "met at the pier" }))
    await ok(ada.http.request("PUT", `/v1/messages/${received.id}/reactions/thanks`))
    await ok(ada.http.post("/v1/mutes", { target_kind: "agent", target_handle: bob.handle }))
    await ok(ada.http.request("PUT", "/v1/presence", { json: { status: "busy", custom_message: "counting ships" } }))
    const group = (await ada.http.post("/v1/groups", { name: "Harbour watch", member_handles: [bob.handle] })).body as {
      group: { id: string }
    }
    const hook = await ada.http.post("/v1/webhooks", { url: "https://example.com/hook", events: ["message.new"] })
    const { secret } = hook.body as { secret: string }
    assert.isString(secret, `${hook}`)
    await ok(ada.http.post(`/v1/messages/${received.id}/read`, { outcome: "done", reason: "all ships counted" }))
    await ok(ada.http.delete(`/v1/messages/${received.id}`))
    await ok(bob.http.post(`/v1/contacts/${ada.handle}/report`, { reason: "too many ships" }))
    await ok(ada.http.post(`/v1/contacts/${bob.handle}/block`))
    const picture = await sharp({ create: { width: 160, height: 160, channels: 3, background: "teal" } }).png()
      .toBuffer()
    await ok(ada.http.request("PUT", `/v1/agents/${ada.handle}/avatar`, { raw: new Uint8Array(picture) }))

    const target = join(folder, "ada")
    const done = await adminHere(server.place, "export", `@${ada.handle.toUpperCase()}`, target, "--json")
    assert.strictEqual(done.code, 0, done.stderr)
    assert.deepInclude(JSON.parse(done.stdout), { handle: ada.handle, files: 2, missing: 0, resumed: false })
    const lines = (name: string) => linesOf(target, name)
    assert.deepInclude((await lines("account"))[0], {
      id: ada.id,
      email: ada.email,
      display_name: "Ada of the harbour",
      description: "Watches ships"
    })
    assert.sameDeepMembers(
      (await lines("messages_sent")).map(({ content, metadata }) => ({ content, metadata })),
      [{ content: { text: "What Ada said" }, metadata: { mood: "calm" } }, { content: { attachment_id }, metadata: {} }]
    )
    const [got] = await lines("messages_received")
    assert.deepInclude(got?.["message"], {
      id: received.id,
      sender_handle: bob.handle,
      content: { text: "What Bob said" }
    })
    assert.deepInclude((await lines("conversations"))[0], {
      conversation_id: sent.conversation_id,
      counterparty_handle: bob.handle
    })
    assert.deepInclude((await lines("outcomes"))[0], { seq: received.seq, state: "done", reason: "all ships counted" })
    assert.deepStrictEqual((await lines("hidden_messages")).map(({ seq }) => seq), [received.seq])
    assert.deepStrictEqual((await lines("reactions")).map(({ emoji, seq }) => [emoji, seq]), [["thanks", received.seq]])
    assert.deepInclude((await lines("contacts"))[0], { contact_handle: bob.handle, notes: "met at the pier" })
    assert.deepInclude((await lines("blocks"))[0], { blocked_handle: bob.handle })
    assert.deepInclude((await lines("mutes"))[0], { kind: "agent", target_handle: bob.handle })
    assert.deepInclude((await lines("groups"))[0], { group_id: group.group.id, role: "admin" })
    assert.deepInclude((await lines("group_invites"))[0], { invitee_handle: bob.handle, inviter_handle: ada.handle })
    assert.deepInclude((await lines("webhooks"))[0], { url: "https://example.com/hook" })
    assert.deepInclude((await lines("uploads"))[0], { id: attachment_id, filename: "ships.csv" })
    assert.strictEqual((await readFile(join(target, "files/avatar.webp"))).toString("latin1", 8, 12), "WEBP")
    assert.deepInclude((await lines("files"))[1], { id: attachment_id, file: `files/${attachment_id}`, missing: false })
    assert.strictEqual(await readFile(join(target, "files", attachment_id), "utf8"), bytes.toString())
    const [reported] = await lines("reports_received")
    assert.sameMembers(Object.keys(reported ?? {}), ["id", "created_at", "decision", "decided_at"])
    assert.include((await lines("audit")).map(({ action }) => action), "export")
    const format = await readFile(join(target, "FORMAT.md"), "utf8")
    for (const name of (await readdir(target)).filter((file) => file.endsWith(".jsonl")))
      assert.include(format, `\`${name}\``)

    const all = (await Promise.all(
      (await readdir(target)).filter((name) => name !== "files").map((name) => readFile(join(target, name), "utf8"))
    )).join("\n")
    for (const hidden of [ada.key, createHash("sha256").update(ada.key).digest("hex"), secret, "too many ships"])
      assert.notInclude(all, hidden)

    assert.deepStrictEqual((await readdir(target)).filter((name) => name.startsWith(".")), [])

    const tar = await adminHere(server.place, "export", ada.handle, join(folder, "ada.tar"))
    assert.strictEqual(tar.code, 0, tar.stderr)
    assert.match(tar.stdout, /contains all data about .*: \d+ rows, 2 files of \d+ bytes/)
    assert.sameMembers(await readdir(folder), ["ada", "ada.tar"])
    // Made while the folder is locked.
    assert.notInclude((await readFile(join(folder, "ada.tar"))).toString("latin1"), ".lock")
    const again = await adminHere(server.place, "export", ada.handle, join(folder, "ada.tar"))
    assert.include(again.stderr, "is there already")
    const nobody = await adminHere(server.place, "export", "nobody-at-all", join(folder, "nobody"))
    assert.include(nobody.stderr, "No agent has the handle nobody-at-all")
    assert.sameMembers(await readdir(folder), ["ada", "ada.tar"])
  })
})
