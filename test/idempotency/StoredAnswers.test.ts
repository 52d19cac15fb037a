import { IdempotencyRepo, type StoredAnswer } from "#domain/idempotency/IdempotencyRepo"
import { StoredAnswers, withoutTexts } from "#domain/idempotency/StoredAnswers"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { layerPgliteTest } from "../support/Databases.ts"

const answer = (body: unknown, headers: Readonly<Record<string, string>> = {}): StoredAnswer => ({
  status: 201,
  headers,
  body: Buffer.from(JSON.stringify(body))
})
const bodyOf = (stored: StoredAnswer | undefined): unknown => JSON.parse(stored?.body?.toString("utf8") ?? "null")

const card = (handle: string) => ({
  handle,
  display_name: "Mona",
  description: "paints",
  avatar_url: "https://x/1",
  status: "active"
})
const cleared = (handle: string) => ({ ...card(handle), display_name: null, description: null, avatar_url: null })

describe("the answer to a repeated request without an agent's texts", () => {
  it("has null for each of them, wherever the agent stands in it; everything else is the same", () => {
    const group = (mona: object) => ({
      name: "Mona's",
      description: "of mona",
      created_by: "mona",
      members: [card("mona-2"), { ...mona, role: "admin" }]
    })
    const given = { group: group(card("mona")), add_results: [{ handle: "mona", outcome: "invited" }] }
    assert.deepStrictEqual(bodyOf(withoutTexts(answer(given), "mona")), { ...given, group: group(cleared("mona")) })
    const contact = { ...card("mona"), notes: "owes me a picture" }
    assert.deepStrictEqual(bodyOf(withoutTexts(answer(contact), "mona")), { ...cleared("mona"), notes: null })
  })

  it("keeps what agents wrote: content and metadata of messages", () => {
    const read = (context: object) => ({
      sender: "mona",
      content: { data: card("mona") },
      metadata: { by: card("mona") },
      context: { sender: context }
    })
    assert.deepStrictEqual(bodyOf(withoutTexts(answer(read(card("mona"))), "mona")), read(cleared("mona")))
    assert.isUndefined(withoutTexts(answer(read({ handle: "lisa" })), "mona"))
  })

  it("has the length of its new body, and the status and other headers of before", () => {
    const before = answer(card("mona"), { "content-length": "999", "content-type": "application/json" })
    const after = withoutTexts(before, "mona")
    assert.deepInclude(after, {
      status: 201,
      headers: { "content-length": String(after?.body?.length), "content-type": "application/json" }
    })
  })

  it("is not made if nothing changes: for other agents, agents without texts, and no body", () => {
    for (
      const body of [card("mona-2"), card("xmona"), cleared("mona"), { ok: true }, {
        handle: "mona",
        description: null
      }]
    ) {
      assert.isUndefined(withoutTexts(answer(body), "mona"))
    }
    assert.isUndefined(withoutTexts({ status: 204, headers: {}, body: null }, "mona"))
  })
})

it.effect("every stored answer is read, slice by slice, whenever it was stored; the erased agent's own and running requests are left alone", () =>
  Effect.gen(function*() {
    const sql = yield* SqlClient.SqlClient
    const ROWS = 2_500
    // Many of the same time, and those at the edge of a slice.
    yield* sql`
      INSERT INTO idempotency_keys (agent_id, key, fingerprint, nonce, created_at, lapses_at, status, headers, body)
      SELECT 'agt_' || i, 'k', 'f', 'n', CASE WHEN i <= 1500 THEN i / 700 ELSE i END, 0, 201, '{}',
        convert_to(${JSON.stringify(card("mona"))}, 'UTF8')
      FROM generate_series(1, ${ROWS}::integer) i`
    yield* sql`INSERT INTO idempotency_keys (agent_id, key, fingerprint, nonce, created_at, lapses_at) VALUES ('agt_2', 'running', 'f', 'n', 5, 0)`
    yield* (yield* StoredAnswers).eraseTexts("agt_1", "mona")
    const texts = yield* sql<{ readonly body: string; readonly rows: number }>`
      SELECT convert_from(body, 'UTF8') AS body, count(*) AS rows FROM idempotency_keys WHERE body IS NOT NULL AND status = 201 GROUP BY body ORDER BY rows`
    assert.deepStrictEqual(texts.map(({ body, rows }) => [JSON.parse(body) as unknown, Number(rows)]), [[
      card("mona"),
      1
    ], [cleared("mona"), ROWS - 1]])
    assert.deepStrictEqual(yield* sql`SELECT status, body FROM idempotency_keys WHERE key = 'running'`, [{
      status: null,
      body: null
    }])
  }).pipe(
    Effect.provide(StoredAnswers.layer.pipe(Layer.provide(IdempotencyRepo.layer), Layer.provideMerge(layerPgliteTest)))
  ))
