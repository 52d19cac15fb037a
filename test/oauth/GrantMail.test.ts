import { connectionMail, type GrantMail } from "#domain/oauth/GrantMail"
import { assert, describe, it } from "@effect/vitest"

const mail = (changes: Partial<GrantMail> = {}) =>
  connectionMail({
    to: "ada@example.com",
    handle: "ada",
    id: "con_AaGbmQggHbcjeFEd",
    clientName: "Claude",
    clientHost: "claude.ai",
    redirectUri: "https://claude.ai/api/mcp/auth_callback",
    scopes: ["agent:read", "agent:act"],
    at: Date.UTC(2026, 10, 25, 9, 30),
    base: "https://parley.example",
    ...changes
  }).text

describe("the mail about a new connection", () => {
  it("says which program it is, where the answer went, what it may do, since when, and how to end the connection", () => {
    const text = mail()
    for (
      const line of [
        "  program:  claude.ai",
        "  sent to:  claude.ai",
        "  it may:   read, and act: send, answer, change and delete",
        "  since:    2026-11-25T09:30:00.000Z",
        "  in a browser: https://parley.example/app, Agent, Connections, Disconnect",
        "  or with the agent's key: DELETE https://parley.example/v1/connections/con_AaGbmQggHbcjeFEd"
      ]
    ) assert.include(text.split("\n"), line)
    assert.include(mail({ scopes: ["agent:read"] }), "  it may:   read, but change nothing\n")
  })

  it("says that nobody has checked the name of a program that registered itself, and keeps the name on one line", () => {
    assert.include(mail({ clientHost: null }), '  program:  calls itself "Claude" (nobody has checked this name)\n')
    assert.include(
      mail({ clientHost: null, clientName: "a\n  it may:   nothing\u202e" }),
      '  program:  calls itself "a  it may:   nothing" ('
    )
    for (const clientName of [null, "", " \n"])
      assert.include(mail({ clientHost: null, clientName }), "  program:  a program that gives no name\n")
  })

  it("names a program on a computer and an application by their kind", () => {
    assert.include(
      mail({ redirectUri: "http://127.0.0.1:33418/callback" }),
      "  sent to:  a program on the computer of whoever allowed it\n"
    )
    assert.include(
      mail({ redirectUri: "cursor://anysphere.cursor-deeplink/cb" }),
      "  sent to:  an application on the device of whoever allowed it (cursor:)\n"
    )
  })
})
