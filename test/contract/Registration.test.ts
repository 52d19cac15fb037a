import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { AgentChatClient, AgentChatError } from "agentchatme"
import type { Answer, Http } from "../support/Http.ts"
import { Moment } from "../support/Moment.ts"
import { RESERVED } from "../support/ReservedHandles.ts"
import { freshHandle, newAgent, type Server, sharedServer } from "../support/Server.ts"
import { Socket } from "../support/Socket.ts"
import * as Shapes from "./Shapes.ts"

/** A code that is not this one. */
const other = (code: string): string => String((Number(code) + 1) % 1_000_000).padStart(6, "0")

describe("wire.md J, Registration", () => {
  let server: Server
  let http: Http

  beforeAll(async () => {
    server = await sharedServer()
    http = server.http()
  })
  afterAll(() => server.stop())

  const fresh = (prefix = "reg") => {
    const handle = freshHandle(prefix)
    return { handle, email: `${handle}@example.com` }
  }

  const register = async (input: object): Promise<string> =>
    (await http.post("/v1/register", input)).ok(200, Shapes.Registered).pending_id

  const verify = (pending_id: string, code: string): Promise<Answer> =>
    http.post("/v1/register/verify", { pending_id, code })

  const recoverVerify = (pending_id: string, code: string): Promise<Answer> =>
    http.post("/v1/agents/recover/verify", { pending_id, code })

  it("21. register answers with a pending id and no key, and mails a code alone on a line", async () => {
    const { handle, email } = fresh()
    const answer = await http.post("/v1/register", { email, handle, display_name: "Reg", description: "one of many" })
    assert.strictEqual(answer.ok(200, Shapes.Registered).expires_in, 600)
    const mail = await server.outbox.next(email)
    assert.match(mail.code ?? "", /^\d{6}$/)
    for (const secret of ["ac_", "api_key", mail.code ?? ""]) assert.notInclude(answer.text, secret)
    assert.match(mail.headers.get("content-type") ?? "", /^text\/plain/)
    assert.isNotEmpty(mail.headers.get("subject"))
    assert.strictEqual(await server.outbox.count(email), 0, "one mail")
    // Not yet an account.
    const somebody = await newAgent(server, "looker")
    ;(await somebody.http.get(`/v1/agents/${handle}`)).refused(404, "AGENT_NOT_FOUND")
  })

  it("21. a missing or malformed field is 400 VALIDATION_ERROR, and no mail leaves", async () => {
    const { handle, email } = fresh()
    const bad: ReadonlyArray<object> = [
      {},
      { handle },
      { email },
      { email: 7, handle },
      { email, handle: 7 },
      { email: null, handle },
      { email: "", handle },
      { email: "nobody", handle },
      { email: "@example.com", handle },
      { email: "a@", handle },
      { email: "a b@example.com", handle },
      { email: "a@b@example.com", handle },
      { email: "a@example.com\nbcc: b@example.com", handle },
      { email: `${"x".repeat(243)}@example.com`, handle },
      { email, handle, display_name: "x".repeat(101) },
      { email, handle, display_name: 7 },
      { email, handle, display_name: "a\nb" },
      { email, handle, display_name: "\u202egnp.exe" },
      { email, handle, display_name: " \u200b" },
      { email, handle, description: "x".repeat(501) }
    ]
    for (const input of bad) (await http.post("/v1/register", input)).refused(400, "VALIDATION_ERROR")
    assert.strictEqual(await server.outbox.count(email), 0)
    // The longest of each are fine, in code points and not in UTF-16 units.
    const long = fresh()
    await register({ ...long, display_name: "\u{1f98a}".repeat(100), description: "\u{1f98a}".repeat(500) })
  })

  it("22. verify answers with the agent and a key that works", async () => {
    const moment = new Moment()
    const { handle, email } = fresh()
    const pending = await register({ email, handle, display_name: "Reg", description: "one of many" })
    const { agent, api_key } = (await verify(pending, await server.code(email))).ok(200, Shapes.Verified)
    assert.deepInclude(agent, {
      handle,
      email,
      email_masked: "r****@example.com",
      display_name: "Reg",
      description: "one of many",
      avatar_url: null,
      status: "active",
      paused_by_owner: "none",
      settings: {
        inbox_mode: "open",
        group_invite_policy: "open",
        budget: { per_conversation_per_day: null, per_day: null }
      }
    })
    moment.has(agent.created_at)
    assert.deepStrictEqual((await server.http(api_key).get("/v1/agents/me")).ok(200, Shapes.Agent), agent)
  })

  it("22. without a display name the handle stands in for it", async () => {
    const { handle, email } = fresh()
    const pending = await register({ email, handle })
    const { agent } = (await verify(pending, await server.code(email))).ok(200, Shapes.Verified)
    assert.deepInclude(agent, { display_name: handle, description: null })
  })

  it("22. verify without a pending id or a code is 400 VALIDATION_ERROR", async () => {
    for (const input of [{}, { code: "123456" }, { pending_id: "pnd_AAAAAAAAAAAAAAAA" }, { pending_id: 1, code: 2 }]) {
      ;(await http.post("/v1/register/verify", input)).refused(400, "VALIDATION_ERROR")
      ;(await http.post("/v1/agents/recover/verify", input)).refused(400, "VALIDATION_ERROR")
    }
  })

  it("23. a handle of the wrong form is INVALID_HANDLE", async () => {
    const bad = [
      "ab",
      "a",
      "",
      "x".repeat(31),
      "-abc",
      "abc-",
      "a--b",
      "1abc",
      "a_b",
      "a.b",
      "a b",
      "ab\u00e9",
      "abc!",
      "\u0430bc",
      "a@b"
    ]
    for (const handle of bad) {
      ;(await http.post("/v1/register", { email: `bad@example.com`, handle })).refused(400, "INVALID_HANDLE")
    }
    assert.strictEqual(await server.outbox.count("bad@example.com"), 0)
    for (const handle of ["abc", "x".repeat(30), "a-b", "a1b2", "a-1-b"]) {
      await register({ email: `${handle}@example.com`, handle })
    }
  })

  it("23. every reserved word is INVALID_HANDLE, in any case and with @ too", async () => {
    for (const handle of RESERVED) {
      for (const spelling of [handle, `@${handle.toUpperCase()}`]) {
        ;(await http.post("/v1/register", { email: `reserved@example.com`, handle: spelling })).refused(
          400,
          "INVALID_HANDLE"
        )
      }
    }
  })

  it("24. handle and e-mail are stored in lower case, trimmed", async () => {
    const { handle, email } = fresh("Mixed-Case".toLowerCase())
    const pending = await register({ email: `  ${email.toUpperCase()} `, handle: ` @${handle.toUpperCase()} ` })
    const { agent } = (await verify(pending, await server.code(email))).ok(200, Shapes.Verified)
    assert.deepInclude(agent, { handle, email })
  })

  it("25. a taken handle is 409 HANDLE_TAKEN at register, in any spelling", async () => {
    const taken = await newAgent(server, "taken")
    const { email } = fresh()
    for (const handle of [taken.handle, taken.handle.toUpperCase(), `@${taken.handle}`]) {
      ;(await http.post("/v1/register", { email, handle })).refused(409, "HANDLE_TAKEN")
    }
    assert.strictEqual(await server.outbox.count(email), 0)
  })

  it("25. a pending registration reserves nothing: the first verify wins, the other is 409 and burned", async () => {
    const { handle } = fresh("race")
    const [one, two] = [`one-${handle}@example.com`, `two-${handle}@example.com`]
    const first = await register({ email: one, handle })
    const second = await register({ email: two, handle })
    ;(await verify(second, await server.code(two))).ok(200, Shapes.Verified)
    const code = await server.code(one)
    ;(await verify(first, code)).refused(409, "HANDLE_TAKEN")
    ;(await verify(first, code)).refused(400, "EXPIRED")
  })

  it("26. a taken e-mail is told at verify only, where the mailbox is proven", async () => {
    const owner = await newAgent(server, "owner")
    const begun = await http.post("/v1/register", { email: owner.email.toUpperCase(), handle: freshHandle("second") })
    const reference = await http.post("/v1/register", fresh())
    assert.strictEqual(begun.ok(200, Shapes.Registered).message, reference.ok(200, Shapes.Registered).message)
    const { pending_id } = begun.ok(200, Shapes.Registered)
    const mail = await server.outbox.next(owner.email)
    assert.match(mail.text, /already/i)
    const code = mail.code ?? assert.fail("no code")
    ;(await verify(pending_id, other(code))).refused(400, "INVALID_CODE")
    ;(await verify(pending_id, code)).refused(409, "EMAIL_TAKEN")
    ;(await verify(pending_id, code)).refused(400, "EXPIRED")
    assert.strictEqual((await owner.http.get("/v1/agents/me")).status, 200)
  })

  it("27. a wrong code is INVALID_CODE with the attempts that remain, and the right one still works", async () => {
    const { handle, email } = fresh()
    const pending = await register({ email, handle })
    const code = await server.code(email)
    for (const remaining of [4, 3]) {
      const refusal = (await verify(pending, other(code))).refused(400, "INVALID_CODE")
      assert.deepStrictEqual(refusal.details, { attempts_remaining: remaining })
    }
    ;(await verify(pending, code)).ok(200, Shapes.Verified)
  })

  it("28. the 6th verify is 429 without Retry-After even with the right code, then EXPIRED", async () => {
    const { handle, email } = fresh()
    const pending = await register({ email, handle })
    const code = await server.code(email)
    for (const remaining of [4, 3, 2, 1, 0]) {
      const refusal = (await verify(pending, other(code))).refused(400, "INVALID_CODE")
      assert.deepStrictEqual(refusal.details, { attempts_remaining: remaining })
    }
    const sixth = await verify(pending, code)
    sixth.refused(429, "OTP_ATTEMPTS_EXHAUSTED")
    assert.isNull(sixth.header("retry-after"))
    ;(await verify(pending, code)).refused(400, "EXPIRED")
  })

  it("28. wrong codes tried at once are counted one by one", async () => {
    const { handle, email } = fresh()
    const pending = await register({ email, handle })
    const wrong = other(await server.code(email))
    const answers = await Promise.all(Array.from({ length: 12 }, () => verify(pending, wrong)))
    const codes = answers.map((answer) => (answer.body as { code: string }).code).sort()
    assert.strictEqual(codes.filter((code) => code === "INVALID_CODE").length, 5, codes.join(" "))
    assert.strictEqual(codes.filter((code) => code === "OTP_ATTEMPTS_EXHAUSTED").length, 1, codes.join(" "))
    assert.strictEqual(codes.filter((code) => code === "EXPIRED").length, 6, codes.join(" "))
  })

  it("29. a used pending id is EXPIRED, and so is one that never was or belongs to something else", async () => {
    const { handle, email } = fresh()
    const pending = await register({ email, handle })
    const code = await server.code(email) // For another purpose it is unknown, and that does not use it up.
    ;(await recoverVerify(pending, code)).refused(400, "EXPIRED")
    ;(await verify(pending, code)).ok(200, Shapes.Verified)
    const again = (await verify(pending, code)).refused(400, "EXPIRED")
    const unknown = (await verify("pnd_AAAAAAAAAAAAAAAA", code)).refused(400, "EXPIRED")
    const nonsense = (await verify("nonsense", code)).refused(400, "EXPIRED")
    assert.deepStrictEqual([unknown, nonsense], [again, again])
  })

  it("29. a code used twice at once makes one account", async () => {
    const { handle, email } = fresh()
    const pending = await register({ email, handle })
    const code = await server.code(email)
    const answers = await Promise.all(Array.from({ length: 8 }, () => verify(pending, code)))
    assert.strictEqual(answers.filter((answer) => answer.status === 200).length, 1, answers.join("\n"))
    for (const answer of answers) {
      if (answer.status !== 200)
        assert.include(["EXPIRED", "EMAIL_TAKEN", "HANDLE_TAKEN"], (answer.body as { code: string }).code)
    }
  })

  it("32. recover looks the same for a known and an unknown e-mail, to the end", async () => {
    const known = await newAgent(server, "known")
    const unknown = `un${known.email}`
    const begin = async (email: string) => (await http.post("/v1/agents/recover", { email })).ok(200, Shapes.Pending)
    const [one, two] = [await begin(known.email), await begin(unknown)]
    assert.strictEqual(one.message, two.message)
    const code = await server.code(known.email)
    assert.strictEqual(await server.outbox.count(unknown), 0)
    for (let i = 0; i < 7; i++) {
      const [mine, decoy] = [
        await recoverVerify(one.pending_id, other(code)),
        await recoverVerify(two.pending_id, other(code))
      ]
      assert.deepStrictEqual([mine.status, mine.body], [decoy.status, decoy.body])
      if (i < 5) mine.refused(400, "INVALID_CODE")
      else if (i === 5) mine.refused(429, "OTP_ATTEMPTS_EXHAUSTED")
      else mine.refused(400, "EXPIRED")
    }
    assert.strictEqual((await known.http.get("/v1/agents/me")).status, 200)
  })

  it("32. within the cooldown a known e-mail gets a fresh pending id for the code already mailed", async () => {
    const known = await newAgent(server, "known")
    const begin = async (email: string) => (await http.post("/v1/agents/recover", { email })).ok(200, Shapes.Pending)
    const one = await begin(known.email)
    const code = await server.code(known.email)
    const two = await begin(known.email)
    assert.notStrictEqual(one.pending_id, two.pending_id)
    assert.strictEqual(one.message, two.message)
    const issued = (await recoverVerify(two.pending_id, code)).ok(200, Shapes.NewKey)
    assert.strictEqual((await server.http(issued.api_key).get("/v1/agents/me")).status, 200)
    assert.strictEqual(await server.outbox.count(known.email), 0, "no second mail")
  })

  it("32. recover wants an e-mail", async () => {
    for (const input of [{}, { email: 7 }, { email: "nobody" }]) {
      ;(await http.post("/v1/agents/recover", input)).refused(400, "VALIDATION_ERROR")
    }
  })

  it("33. recover/verify: the new key works, the old one is 401 and its sockets are closed 1008", async () => {
    const agent = await newAgent(server, "forgetful")
    const socket = await Socket.hello(server, agent.key)
    const begun = (await http.post("/v1/agents/recover", { email: ` ${agent.email.toUpperCase()} ` })).ok(
      200,
      Shapes.Pending
    )
    const code = await server.code(agent.email)
    ;(await recoverVerify(begun.pending_id, other(code))).refused(400, "INVALID_CODE")
    assert.strictEqual((await agent.http.get("/v1/agents/me")).status, 200, "nothing changes before the code is right")
    const issued = (await recoverVerify(begun.pending_id, code)).ok(200, Shapes.NewKey)
    assert.strictEqual(issued.handle, agent.handle)
    assert.notStrictEqual(issued.api_key, agent.key)
    ;(await agent.http.get("/v1/agents/me")).refused(401, "UNAUTHORIZED")
    assert.strictEqual((await server.http(issued.api_key).get("/v1/agents/me")).ok(200, Shapes.Agent).id, agent.id)
    await socket.closedWith(1008)
    ;(await recoverVerify(begun.pending_id, code)).refused(400, "EXPIRED")
  })

  it("21, 22, 32, 33. the published client registers, verifies and recovers", async () => {
    const { handle, email } = fresh("client")
    const options = { baseUrl: server.url }
    const begun = await AgentChatClient.register({ email, handle, display_name: "Client", ...options })
    const code = await server.code(email)
    const wrong = await AgentChatClient.verify(begun.pending_id, other(code), options).then(
      () => assert.fail("a wrong code was accepted"),
      (error: unknown) => error
    )
    assert.instanceOf(wrong, AgentChatError)
    assert.deepInclude(wrong, { status: 400, code: "INVALID_CODE", details: { attempts_remaining: 4 } })
    const { agent, apiKey, client } = await AgentChatClient.verify(begun.pending_id, code, options)
    assert.deepInclude(agent, { handle, email, display_name: "Client" })
    assert.strictEqual((await client.getMe()).handle, handle)

    const decoy = await AgentChatClient.recover(`no-${email}`, options)
    const recovery = await AgentChatClient.recover(email, options)
    assert.strictEqual(decoy.message, recovery.message)
    const recovered = await AgentChatClient.recoverVerify(recovery.pending_id ?? "", await server.code(email), options)
    assert.strictEqual(recovered.handle, handle)
    assert.notStrictEqual(recovered.apiKey, apiKey)
    assert.strictEqual((await recovered.client.getMe()).handle, handle)
    const old = await client.getMe().catch((error: unknown) => error)
    assert.deepInclude(old, { status: 401, code: "UNAUTHORIZED", name: "UnauthorizedError" })
  })
})
