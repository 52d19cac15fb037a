import { ConsoleApi } from "#interfaces/console/ConsoleApi"
import type { Role } from "#interfaces/operator/Role"
import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { adminHere } from "../support/Admin.ts"
import { cookieOf, newToken, Operating, redeem } from "../support/Operating.ts"
import { newAgent, type Server, startServer, type TestAgent } from "../support/Server.ts"

/** Reads that only an operator may make: they show addresses of servers, and what a log says about people. */
const OPERATOR_READS = ["problems", "settings"]
/** The calls that a viewer and a moderator may make besides reads, and the read that a viewer may not. */
const OWN = ["leave"]
const MODERATION = [
  "invite",
  "endInvitation",
  "announce",
  "tell",
  "suspend",
  "restore",
  "report",
  "uphold",
  "dismiss",
  "promoteMember",
  "removeMember",
  "deleteGroup",
  "removeMessage",
  "quarantineFile",
  "releaseFile"
]

describe("roles of operators (wire.md O.1)", () => {
  let server: Server
  let ada: TestAgent
  beforeAll(async () => {
    server = await startServer()
    ada = await newAgent(server, "ada")
  })
  afterAll(() => server?.stop())

  const place = () => ({ ...server.place, PORT: new URL(server.url).port, PUBLIC_URL: server.url })
  const session = async (person: string, role: Role): Promise<Operating> => {
    const { code, stderr, stdout } = await adminHere(place(), "console", "--for", person, "--role", role, "--json")
    assert.strictEqual(code, 0, stderr)
    const { url } = JSON.parse(stdout) as { readonly url: string }
    const answer = await redeem(server, new URL(url).hash.slice(1))
    assert.deepInclude(answer.body, { role })
    return Operating.withSession(server, cookieOf(answer))
  }

  it("each pair of a role and an endpoint is allowed or refused as the contract says", async () => {
    const wrong: Array<string> = []
    for (const role of ["viewer", "moderator", "operator"] as const) {
      const own = await session("nina", role)
      for (
        const [call, endpoint] of Object.values(ConsoleApi.groups).flatMap((group) => Object.entries(group.endpoints))
      ) {
        const { method, path } = endpoint as { readonly method: string; readonly path: string }
        // Signing in needs no role. The other calls name what does not exist, so they change nothing.
        if (["redeem", "signInByProxy"].includes(call)) continue
        const who = call === "leave" ? await session("nina", role) : own
        const address = path.replace("/console/api", "").replaceAll(/:\w+/g, "nothing-has-this")
        const stop = new AbortController()
        const status = call === "stream"
          ? (await fetch(server.url + path, { headers: who.headers, signal: stop.signal })).status
          : (await who.ask(
            method,
            address,
            method === "GET" ? undefined : call === "setEmail" ? { email: "nina@example.org" } : {}
          )).status
        stop.abort()
        const isAllowed = role === "operator" || OWN.includes(call) ||
          (role === "moderator" && MODERATION.includes(call)) ||
          (method === "GET" && ![...MODERATION, ...OPERATOR_READS].includes(call))
        // Not even an operator's session may give somebody an agent.
        const isForbidden = !isAllowed || ["rekey", "setEmail"].includes(call)
        if ((status === 403) !== isForbidden) wrong.push(`${role} ${method} ${call}: ${status}`)
      }
    }
    assert.deepStrictEqual(wrong, [])
  })

  it("a viewer sees no address, and cannot search for one", async () => {
    const viewer = await session("vera", "viewer")
    const { agents } = await viewer.ok<{ readonly agents: ReadonlyArray<{ readonly email: string }> }>(
      "GET",
      `/agents?handle=${ada.handle}`
    )
    assert.notInclude(JSON.stringify(agents), ada.email)
    assert.notInclude((await viewer.ask("GET", `/agents/${ada.handle}`)).text, ada.email)
    ;(await viewer.ask("GET", `/agents?email=${encodeURIComponent(ada.email)}`)).refused(403, "FORBIDDEN")
    const operator = await Operating.signIn(server)
    await operator.ok("POST", "/invitations", { email: "nina@example.net" })
    assert.include((await operator.ask("GET", "/invitations")).text, "nina@example.net")
    assert.notInclude((await viewer.ask("GET", "/invitations")).text, "nina@example.net")
    assert.include((await operator.ask("GET", `/agents/${ada.handle}`)).text, ada.email)
  })

  it("the audit log names the person and the role, for a session and for a token of a program", async () => {
    const moderator = await session("max", "moderator")
    await moderator.ok("POST", `/agents/${ada.handle}/suspend`, { reason: "a test" })
    await moderator.ok("POST", `/agents/${ada.handle}/restore`, {})
    ;(await moderator.ask("POST", `/agents/${ada.handle}/erase`, { confirm: ada.handle })).refused(403, "FORBIDDEN")
    const token = await newToken(server, "--role", "viewer")
    const program = { authorization: `Bearer ${token}` }
    assert.strictEqual((await fetch(`${server.url}/console/api/overview`, { headers: program })).status, 200)
    const refused = await fetch(`${server.url}/console/api/connections/end`, {
      method: "POST",
      headers: { ...program, "content-type": "application/json" },
      body: "{}"
    })
    assert.strictEqual(refused.status, 403)
    const operator = await Operating.signIn(server)
    const { entries } = await operator.ok<{
      readonly entries: ReadonlyArray<{ readonly operator: string; readonly action: string; readonly detail: string }>
    }>("GET", "/audit?looks=false&limit=50")
    const by = (who: string) => entries.filter(({ operator }) => operator === who).map(({ action }) => action)
    assert.deepStrictEqual(by("max (moderator)"), ["refused erase", "restore", "suspend", "open console session"])
    const made = entries.find(({ action, detail }) => action === "make console link" && detail?.includes("max"))
    assert.strictEqual(made?.detail, `for "max", as moderator`)
    assert.isTrue(
      entries.some(({ action, operator }) => action === "refused endAllConnections" && operator.endsWith(" (viewer)"))
    )
  })
})
