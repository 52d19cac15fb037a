import { FoundMessage } from "#domain/search/SearchApi"
import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { Schema } from "effect"
import type { Answer } from "../support/Http.ts"
import { newAgent, type Server, sharedServer, type TestAgent } from "../support/Server.ts"
import * as Shapes from "./Shapes.ts"
import { history, idsOf, newPair, say } from "./Talk.ts"

const Found = Schema.Struct({
  messages: Schema.Array(FoundMessage),
  next_cursor: Schema.NullOr(Schema.String),
  complete: Schema.Boolean
})

const attempt = (agent: TestAgent, query: Readonly<Record<string, string>>): Promise<Answer> =>
  agent.http.get(`/v1/messages/search?${new URLSearchParams(query)}`)

const search = async (
  agent: TestAgent,
  q: string,
  more: Readonly<Record<string, string>> = {}
): Promise<typeof Found.Type> => (await attempt(agent, { q, ...more })).ok(200, Found)

const content = (text: string) => ({ content: { text } })

describe("wire.md J, search", () => {
  let server: Server

  beforeAll(async () => {
    server = await sharedServer()
  })
  afterAll(() => server.stop())

  it("207. a search shows messages with all words, newest first, as history shows them, with the places of the words", async () => {
    const { alice, bob, conversation } = await newPair(server)
    const one = await say(alice, bob, content("The Quick brown Fox"))
    const two = await say(bob, alice, content("a quick answer: the fox, THE FOX!"))
    await say(alice, bob, content("the slow one"))
    const found = await search(bob, "fox THE")
    assert.deepStrictEqual(found, {
      messages: [
        {
          ...(await history(bob, conversation)).find(({ id }) => id === two.id)!,
          highlights: [[16, 19], [20, 23], [25, 28], [29, 32]]
        },
        { ...(await history(bob, conversation)).find(({ id }) => id === one.id)!, highlights: [[0, 3], [16, 19]] }
      ],
      next_cursor: null,
      complete: true
    })
    assert.deepStrictEqual(idsOf((await search(alice, "qui*")).messages), [two.id, one.id])
    assert.deepStrictEqual(idsOf((await search(alice, "QUICK", { from: `@${bob.handle}` })).messages), [two.id])
    assert.deepStrictEqual(idsOf((await search(alice, "quick", { from: alice.handle })).messages), [one.id])
    assert.deepStrictEqual(idsOf((await search(alice, "quick", { from: "nobody-of-this-name" })).messages), [])
    assert.deepStrictEqual(idsOf((await search(alice, "quick", { conversation_id: conversation })).messages), [
      two.id,
      one.id
    ])
    assert.deepStrictEqual(
      idsOf((await search(alice, "quick", { before: two.created_at })).messages),
      one.created_at === two.created_at ? [] : [one.id]
    )
    assert.deepStrictEqual(idsOf((await search(alice, "quick", { after: two.created_at })).messages), [])
    assert.deepStrictEqual(idsOf((await search(alice, "quic")).messages), [])
  })

  it("208. pages go on where the last one ended, also when messages come", async () => {
    const { alice, bob } = await newPair(server)
    const sent: Array<string> = []
    for (let i = 0; i < 7; i++) sent.unshift((await say(alice, bob, content(`page ${i}`))).id)
    const seen: Array<string> = []
    for (let cursor: string | null = ""; cursor !== null;) {
      const page: typeof Found.Type = await search(bob, "page", { limit: "3", cursor })
      seen.push(...idsOf(page.messages))
      cursor = page.next_cursor
      await say(alice, bob, content("page of later"))
    }
    assert.deepStrictEqual(seen, sent)
    for (const cursor of ["x", "e30", Buffer.from('{"at":1,"conversationId":"\'","seq":1}').toString("base64url")]) {
      ;(await attempt(bob, { q: "page", cursor })).refused(400, "VALIDATION_ERROR")
    }
  })

  it("209. a search finds nothing that the history does not show", async () => {
    const { alice, bob, conversation } = await newPair(server)
    const stranger = await newAgent(server, "stranger")
    const secret = await say(alice, bob, content("xylophone"))
    assert.deepStrictEqual(idsOf((await search(bob, "xylophone")).messages), [secret.id])
    assert.deepStrictEqual((await search(stranger, "xylophone")).messages, [])
    ;(await attempt(stranger, { q: "xylophone", conversation_id: conversation })).refused(404, "CONVERSATION_NOT_FOUND")
    ;(await bob.http.delete(`/v1/messages/${secret.id}`)).ok(200, Shapes.Confirmation)
    assert.deepStrictEqual((await search(bob, "xylophone")).messages, [])
    assert.deepStrictEqual(idsOf((await search(alice, "xylophone")).messages), [secret.id])
    ;(await alice.http.delete(`/v1/conversations/${conversation}`)).ok(200, Shapes.Hidden)
    assert.deepStrictEqual((await search(alice, "xylophone")).messages, [])
  })

  it("210. queries without a word, with too many words and of a wrong length are refused", async () => {
    const agent = await newAgent(server, "asks")
    for (const q of ["a", "... !", "a b c d e f g h i", "wo*", "x".repeat(201), "", "a\0b"]) {
      ;(await attempt(agent, { q })).refused(400, "VALIDATION_ERROR")
    }
    ;(await agent.http.get("/v1/messages/search")).refused(400, "VALIDATION_ERROR")
    for (
      const more of [{ after: "yesterday" }, { before: "2026-02-30T00:00:00Z" }, { limit: "0" }, {
        conversation_id: "'"
      }]
    ) {
      const answer = await attempt(agent, { q: "word", ...more })
      assert.include([400, 404], answer.status)
    }
  })

  it("211. an agent has 30 searches a minute", async () => {
    const agent = await newAgent(server, "asks-much")
    for (let i = 0; i < 30; i++) await search(agent, "word")
    ;(await attempt(agent, { q: "word" })).refused(429, "RATE_LIMITED")
  })
})
