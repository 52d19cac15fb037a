import { Accounts } from "#domain/agents/Accounts"
import { Grants, type Issued, type NotIssued } from "#domain/oauth/Grants"
import { GrantsRepo, lastUsedAt } from "#domain/oauth/GrantsRepo"
import { oauthTables } from "#domain/oauth/OAuthTables"
import { REPEAT_MS } from "#domain/oauth/Tokens"
import { Secrets } from "#infrastructure/database/Secrets"
import { type Mail, MailQueue } from "#infrastructure/platform/Mailer"
import { assert, layer } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { createHash, randomBytes } from "node:crypto"
import { eachDatabase } from "../support/Databases.ts"
import { chanceFor, eventually } from "../support/Eventually.ts"
import { sweepExpired } from "../support/Expiry.ts"
import { leap } from "../support/Leap.ts"
import { layerModules, newAgent } from "../support/Modules.ts"

const verifier = randomBytes(32).toString("base64url")
const challenge = createHash("sha256").update(verifier).digest("base64url")
const clientId = "https://host.example/client.json"
const redirectUri = "https://host.example/callback"

const issuedOf = (issued: Issued | NotIssued): Issued => {
  if ("_tag" in issued) throw new Error(issued._tag)
  return issued
}
const tagOf = (issued: Issued | NotIssued) => "_tag" in issued ? issued._tag : "Issued"

/** The mails that were begun. */
const mails: Array<Mail> = []
const recording = Layer.succeed(
  MailQueue,
  MailQueue.of({
    ready: Effect.void,
    deliver: (mail) => Effect.sync(() => void mails.push(mail)),
    begin: (sending) => Effect.ignore(sending)
  })
)

/** The entries of the audit log about an agent, the oldest first. */
const notedAbout = Effect.fnUntraced(function*(agentId: string) {
  const sql = yield* SqlClient.SqlClient
  const rows = yield* sql<Record<"operator" | "action" | "reason", string>>`
    SELECT operator, action, reason FROM audit_log WHERE agent_id = ${agentId} ORDER BY no`
  return rows.map(({ action, operator, reason }) => `${operator}: ${action} ${reason.replace(/con_[\w-]{16}/, "con")}`)
})
const GRANTED = "server: grant connection con: host.example, sent to host.example, agent:read agent:act"

let serial = 0

eachDatabase((database) => {
  // The modules have this service too, with mails of their own.
  layer(
    Layer.fresh(Grants.layer).pipe(
      Layer.provideMerge(GrantsRepo.layer),
      Layer.provideMerge(Layer.merge(Secrets.layer, recording)),
      Layer.provideMerge(layerModules(database))
    )
  )((it) => {
    const begin = Effect.fnUntraced(
      function*(scopes: ReadonlyArray<"agent:read" | "agent:act"> = ["agent:read", "agent:act"]) {
        const agent = yield* newAgent(`host-${serial++}`)
        const connections = yield* Grants
        const code = yield* connections.connect({
          agentId: agent.id,
          clientId,
          clientName: null,
          clientHost: "host.example",
          redirectUri,
          scopes,
          challenge
        })
        return { agent, code, connections, redeemed: { code, clientId, redirectUri, verifier } }
      }
    )
    const connect = Effect.gen(function*() {
      const { redeemed, ...begun } = yield* begin()
      return { ...begun, first: issuedOf(yield* begun.connections.redeem(redeemed)) }
    })
    const isLive = (token: string) =>
      Effect.flatMap(
        Grants,
        ({ authenticate }) => Effect.match(authenticate(token), { onFailure: () => false, onSuccess: () => true })
      )

    it.effect("a code gives a pair that acts for the agent with the scopes that were allowed", () =>
      Effect.gen(function*() {
        const { agent, connections, redeemed } = yield* begin(["agent:read"])
        const issued = issuedOf(yield* connections.redeem(redeemed))
        assert.strictEqual(issued.expiresIn, 604_800)
        assert.deepStrictEqual(issued.scopes, ["agent:read"])
        const found = yield* connections.authenticate(issued.access)
        assert.strictEqual(found.agent.id, agent.id)
        assert.deepStrictEqual(found.scopes, ["agent:read"])
        for (const other of [issued.refresh, redeemed.code, agent.key, `oat_${"A".repeat(43)}`, ""])
          assert.isFalse(yield* isLive(other))
      }))

    it.effect("a code is refused to another client, for another redirect, without its verifier, and after a minute; it stays good for its owner", () =>
      Effect.gen(function*() {
        const { connections, redeemed } = yield* begin()
        for (
          const stolen of [
            { ...redeemed, clientId: "https://thief.example/client.json" },
            { ...redeemed, redirectUri: `${redirectUri}/` },
            { ...redeemed, verifier: randomBytes(32).toString("base64url") },
            { ...redeemed, verifier: challenge },
            { ...redeemed, verifier: "" },
            { ...redeemed, code: `oac_${"A".repeat(43)}` }
          ]
        ) assert.strictEqual(tagOf(yield* connections.redeem(stolen)), "Unknown")
        assert.strictEqual(tagOf(yield* connections.redeem(redeemed)), "Issued")
        const late = yield* begin()
        yield* leap("60 seconds")
        assert.strictEqual(tagOf(yield* late.connections.redeem(late.redeemed)), "Unknown")
      }))

    it.effect("a code that is used again ends the connection", () =>
      Effect.gen(function*() {
        const { agent, connections, redeemed } = yield* begin()
        const { access, refresh } = issuedOf(yield* connections.redeem(redeemed))
        const again = yield* connections.redeem(redeemed)
        assert.strictEqual(tagOf(again), "Reused")
        assert.deepStrictEqual(yield* notedAbout(agent.id), [
          GRANTED,
          "server: end connection con: a code was used again"
        ])
        assert.isFalse(yield* isLive(access))
        assert.strictEqual(tagOf(yield* connections.refresh(refresh, clientId)), "Unknown")
        assert.deepStrictEqual(yield* connections.list(agent.id), [])
      }))

    it.effect("one of 20 exchanges of one code at once gets the pair, and the connection ends", () =>
      Effect.gen(function*() {
        const { connections, redeemed } = yield* begin()
        const answers = yield* Effect.forEach(Array.from({ length: 20 }), () => connections.redeem(redeemed), {
          concurrency: "unbounded"
        })
        assert.deepStrictEqual(answers.map(tagOf).filter((tag) => tag === "Issued"), ["Issued"])
        assert.strictEqual(answers.map(tagOf).filter((tag) => tag === "Reused").length, 1)
        assert.isFalse(yield* isLive(issuedOf(answers.find((one) => tagOf(one) === "Issued")!).access))
      }))

    it.effect("two processes that refresh at once get the same pair (Claude Code)", () =>
      Effect.gen(function*() {
        const { connections, first } = yield* connect
        const answers = yield* Effect.forEach(Array.from({ length: 10 }), () =>
          connections.refresh(first.refresh, clientId), { concurrency: "unbounded" })
        const pairs = new Set(answers.map((one) =>
          `${issuedOf(one).access} ${issuedOf(one).refresh}`
        ))
        assert.strictEqual(pairs.size, 1)
        const { access, refresh } = issuedOf(answers[0]!)
        assert.notStrictEqual(access, first.access)
        assert.isTrue(yield* isLive(access))
        // The process that has not heard of the new pair goes on with its own access token.
        assert.isTrue(yield* isLive(first.access))
        assert.strictEqual(tagOf(yield* connections.refresh(refresh, clientId)), "Issued")
      }))

    it.effect("a refresh whose answer was lost gives the same pair, however late", () =>
      Effect.gen(function*() {
        const { connections, first } = yield* connect
        const lost = issuedOf(yield* connections.refresh(first.refresh, clientId))
        yield* leap("10 days")
        const again = issuedOf(yield* connections.refresh(first.refresh, clientId))
        assert.deepStrictEqual(again, lost)
        assert.isTrue(yield* isLive(again.access))
      }))

    it.effect("a refresh token that is used again a minute after its successor's first use ends the connection", () =>
      Effect.gen(function*() {
        for (const use of ["access", "refresh"] as const) {
          const { agent, connections, first } = yield* connect
          const second = issuedOf(yield* connections.refresh(first.refresh, clientId))
          if (use === "access") assert.isTrue(yield* isLive(second.access))
          else assert.strictEqual(tagOf(yield* connections.refresh(second.refresh, clientId)), "Issued")
          yield* leap(REPEAT_MS - 1_000)
          assert.deepStrictEqual(issuedOf(yield* connections.refresh(first.refresh, clientId)).access, second.access)
          yield* leap(1_000)
          const reused = yield* connections.refresh(first.refresh, clientId)
          assert.strictEqual(tagOf(reused), "Reused")
          assert.deepStrictEqual(yield* notedAbout(agent.id), [
            GRANTED,
            "server: end connection con: a refresh token was used again"
          ])
          yield* leap(1_000)
          assert.isFalse(yield* isLive(second.access))
        }
      }))

    it.effect("another client's refresh token is refused and nothing ends; an idle one expires after 90 days, used ones never", () =>
      Effect.gen(function*() {
        const { connections, first } = yield* connect
        assert.strictEqual(
          tagOf(yield* connections.refresh(first.refresh, "https://thief.example/client.json")),
          "Unknown"
        )
        let { refresh } = first
        for (let i = 0; i < 4; i++) {
          yield* leap("80 days")
          refresh = issuedOf(yield* connections.refresh(refresh, clientId)).refresh
        }
        yield* leap("90 days")
        assert.strictEqual(tagOf(yield* connections.refresh(refresh, clientId)), "Unknown")
      }))

    it.effect("an access token expires", () =>
      Effect.gen(function*() {
        const { first } = yield* connect
        yield* leap(604_799_000)
        assert.isTrue(yield* isLive(first.access))
        yield* leap("1 second")
        assert.isFalse(yield* isLive(first.access))
      }))

    it.effect("a connection ends with the key, and with the account", () =>
      Effect.gen(function*() {
        const accounts = yield* Accounts
        for (const end of ["rotation", "deletion"] as const) {
          const { agent, code, connections, first } = yield* connect
          const other = yield* connections.connect({
            agentId: agent.id,
            clientId,
            clientName: null,
            clientHost: null,
            redirectUri,
            scopes: ["agent:read"],
            challenge
          })
          assert.isTrue(yield* isLive(first.access))
          if (end === "rotation") {
            yield* accounts.replaceKey(agent.id)
            yield* accounts.keyReplaced(agent.id)
          } else yield* accounts.remove(agent.id)
          assert.isFalse((yield* notedAbout(agent.id)).some((entry) => entry.includes("end connection")))
          assert.isFalse(yield* isLive(first.access))
          assert.strictEqual(tagOf(yield* connections.refresh(first.refresh, clientId)), "Unknown")
          for (const one of [code, other])
            assert.strictEqual(
              tagOf(yield* connections.redeem({ code: one, clientId, redirectUri, verifier })),
              "Unknown"
            )
          assert.deepStrictEqual(yield* connections.list(agent.id), [])
          if (end === "deletion") {
            const late = yield* Effect.flip(connections.connect({
              agentId: agent.id,
              clientId,
              clientName: null,
              clientHost: null,
              redirectUri,
              scopes: ["agent:read"],
              challenge
            }))
            assert.strictEqual(late._tag, "Unauthorized")
          }
        }
      }))

    it.effect("either token of its client ends a connection, and the agent can end its own only", () =>
      Effect.gen(function*() {
        for (const kind of ["access", "refresh"] as const) {
          const { agent, connections, first } = yield* connect
          assert.isUndefined(yield* connections.revoke(first[kind], "https://thief.example/client.json"))
          assert.isDefined(yield* connections.revoke(first[kind], clientId))
          assert.isUndefined(yield* connections.revoke(first[kind], clientId))
          assert.deepStrictEqual(yield* notedAbout(agent.id), [
            GRANTED,
            "server: end connection con: revoked by the host"
          ])
          yield* leap("1 second")
          assert.isFalse(yield* isLive(first.access))
        }
        const { agent, connections, first } = yield* connect
        const stranger = yield* connect
        const { id } = (yield* connections.list(agent.id))[0]!
        assert.isUndefined(yield* connections.end(stranger.agent.id, id))
        assert.isTrue(yield* isLive(first.access))
        assert.strictEqual((yield* connections.end(agent.id, id))?.clientHost, "host.example")
        assert.deepStrictEqual(yield* notedAbout(agent.id), [
          GRANTED,
          "server: end connection con: disconnected by the agent"
        ])
        yield* leap("1 second")
        assert.isFalse(yield* isLive(first.access))
        assert.isTrue(yield* isLive(stranger.first.access))
      }))

    it.effect("the last use of a connection is that of its tokens, and the exchange of the code is none", () =>
      Effect.gen(function*() {
        const { agent, connections, redeemed } = yield* begin()
        const lastUse = Effect.map(connections.list(agent.id), ([connection]) => {
          const usedAt = lastUsedAt(connection!)
          return usedAt === null ? null : usedAt - connection!.createdAt
        })
        yield* leap("1 second")
        const { access, refresh } = issuedOf(yield* connections.redeem(redeemed))
        assert.isNull(yield* lastUse)
        yield* leap("1 second")
        assert.isTrue(yield* isLive(access))
        assert.strictEqual(yield* lastUse, 2_000)
        yield* leap("1 second")
        yield* connections.refresh(refresh, clientId)
        assert.strictEqual(yield* lastUse, 3_000)
      }))

    it.effect("the connection that was unused longest gives way to the 51st", () =>
      Effect.gen(function*() {
        const { agent, connections, first } = yield* connect
        for (let i = 0; i < 49; i++) {
          yield* leap("1 second")
          yield* connections.connect({
            agentId: agent.id,
            clientId: `c${i}`,
            clientName: null,
            clientHost: null,
            redirectUri,
            scopes: [],
            challenge
          })
        }
        yield* leap("2 minutes")
        assert.isTrue(yield* isLive(first.access))
        yield* connections.connect({
          agentId: agent.id,
          clientId: "c49",
          clientName: null,
          clientHost: null,
          redirectUri,
          scopes: [],
          challenge
        })
        const left = (yield* connections.list(agent.id)).map(({ clientId }) => clientId)
        assert.strictEqual(left.length, 50)
        assert.isTrue(left.includes(clientId))
        assert.isFalse(left.includes("c0"))
        assert.strictEqual(
          (yield* notedAbout(agent.id)).at(-1),
          "server: end connection con: replaced by newer connections"
        )
      }))

    it.effect("the owner of an agent gets a mail about each new connection; an agent without an e-mail address gets none", () =>
      Effect.gen(function*() {
        const sql = yield* SqlClient.SqlClient
        mails.length = 0
        const { agent, connections } = yield* begin()
        yield* Effect.promise(() => eventually("the mail", () => mails.length > 0 || undefined))
        assert.deepStrictEqual(mails.map(({ subject, to }) => [to, subject]), [[
          `${agent.handle}@example.com`,
          `A program may now act for @${agent.handle}`
        ]])
        const { id } = (yield* connections.list(agent.id))[0]!
        assert.include(mails[0]!.text, `/v1/connections/${id}`)
        yield* sql`UPDATE agents SET email = ${`${agent.handle}@agents.invalid`} WHERE id = ${agent.id}`
        yield* leap("2 seconds")
        yield* connections.connect({
          agentId: agent.id,
          clientId,
          clientName: null,
          clientHost: null,
          redirectUri,
          scopes: ["agent:read"],
          challenge
        })
        yield* Effect.promise(() => chanceFor("a second mail"))
        assert.strictEqual(mails.length, 1)
      }))

    it.effect("a host that refreshes for ever holds a bounded number of rows, and the sweep leaves nothing of what has ended", () =>
      Effect.gen(function*() {
        const sql = yield* SqlClient.SqlClient
        const { agent, connections, first } = yield* connect
        let { refresh } = first
        for (let i = 0; i < 60; i++) refresh = issuedOf(yield* connections.refresh(refresh, clientId)).refresh
        yield* leap("8 days")
        const sweep = Effect.gen(function*() {
          while ((yield* sweepExpired(oauthTables, "oauth")).more);
        })
        yield* sweep
        const rows =
          yield* sql`SELECT FROM oauth_tokens t JOIN oauth_connections c ON c.id = t.connection_id WHERE c.agent_id = ${agent.id}`
        assert.isAtMost(rows.length, 22)
        assert.strictEqual(tagOf(yield* connections.refresh(refresh, clientId)), "Issued")
        yield* connections.removeAgent(agent.id)
        yield* leap("91 days")
        yield* sweep
        assert.deepStrictEqual(yield* sql`SELECT hash FROM oauth_tokens`, [])
        assert.deepStrictEqual(yield* sql`SELECT id FROM oauth_connections`, [])
      }))

    it.effect("rows hold no token", () =>
      Effect.gen(function*() {
        const sql = yield* SqlClient.SqlClient
        const { agent, code, first } = yield* connect
        const rows =
          yield* sql`SELECT t::text AS t, c::text AS c FROM oauth_tokens t JOIN oauth_connections c ON c.id = t.connection_id WHERE c.agent_id = ${agent.id}`
        assert.strictEqual(rows.length, 3)
        for (const secret of [code, first.access, first.refresh, agent.key]) {
          for (const form of [secret, secret.slice(4), Buffer.from(secret.slice(4), "base64url").toString("hex")]) {
            assert.isFalse(JSON.stringify(rows).includes(form))
          }
        }
      }))
  })
})
