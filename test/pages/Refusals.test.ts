import { assert, describe, it } from "@effect/vitest"
import { readFileSync } from "node:fs"
import { Refused } from "../../src/interfaces/pages/client/Api.js"
import { sentenceOf } from "../../src/interfaces/pages/client/Refusals.js"

interface Schema {
  readonly properties: { readonly code: { readonly enum: ReadonlyArray<string> } }
}
const document = JSON.parse(readFileSync(new URL("../contract/openapi.json", import.meta.url), "utf8")) as {
  readonly paths: Readonly<
    Record<string, Readonly<Record<string, { readonly responses: Readonly<Record<string, unknown>> }>>>
  >
  readonly components: { readonly schemas: Readonly<Record<string, Schema>> }
}

/** The requests of the dialogs for new messages and for groups. */
const REQUESTS: ReadonlyArray<readonly [path: string, method: string]> = [
  ["/v1/agents/{handle}", "get"],
  ["/v1/groups", "post"],
  ["/v1/groups/{id}", "get"],
  ["/v1/groups/{id}", "patch"],
  ["/v1/groups/{id}", "delete"],
  ["/v1/groups/{id}/leave", "post"],
  ["/v1/groups/{id}/members", "post"],
  ["/v1/groups/{id}/members/{handle}", "delete"],
  ["/v1/groups/{id}/members/{handle}/promote", "post"],
  ["/v1/groups/{id}/members/{handle}/demote", "post"],
  ["/v1/groups/{id}/invites", "get"],
  ["/v1/groups/{id}/invites/{invite_id}", "delete"]
]

/** The codes of all refusals of these requests. */
const codes = new Set(
  REQUESTS.flatMap(([path, method]) =>
    Object.entries(document.paths[path]![method]!.responses).filter(([status]) => status >= "400").flatMap((
      [, response]
    ) =>
      [...JSON.stringify(response).matchAll(/#\/components\/schemas\/(\w+)/g)].flatMap(([, name]) =>
        document.components.schemas[name!]!.properties.code.enum
      )
    )
  )
)

const names = { own: "ada", other: "bob" }
const said = (code: string, details?: object, retryAfter?: number) =>
  sentenceOf(new Refused(code, "raw_field: raw text of the server", 400, retryAfter, details), names)

describe("refusals in the dialogs for new messages and groups", () => {
  it("each is a sentence of the page, without a code and without the name of a field", () => {
    assert.includeMembers([...codes], ["AGENT_NOT_FOUND", "BLOCKED", "GROUP_FULL", "INBOX_RESTRICTED", "LAST_ADMIN"])
    for (const code of codes) {
      // The server says which of its rules for groups it has applied.
      if (code === "FORBIDDEN") continue
      for (const text of [said(code), ...code === "VALIDATION_ERROR" ? [] : [sentenceOf(code, names)]]) {
        assert.match(text, /^[A-Z@].*\.$/, code)
        assert.notMatch(text, /raw|_|[A-Z]{3}/, code)
      }
    }
  })

  it("an unknown code in a response is a sentence too, and an unknown refusal has the server's text", () => {
    assert.strictEqual(sentenceOf("SOMETHING_NEW", names), "The server refused this. Try again later.")
    assert.strictEqual(said("SOMETHING_NEW"), "raw_field: raw text of the server")
    assert.strictEqual(sentenceOf(new Error("away"), names), "away")
  })

  it("a limit says when to try again, and which limit it is", () => {
    assert.strictEqual(
      said("RATE_LIMITED", { window: "day", limit: 1 }, 7_200),
      "@bob was invited to this group recently and cannot be invited again yet. Try again in 2 h."
    )
    assert.include(said("RATE_LIMITED", { window: "day", limit: 500 }, 600), "@ada has sent all invites")
    assert.include(said("RATE_LIMITED", {}, 3), "Try again in 3 s.")
    assert.include(said("VALIDATION_ERROR", { fields: { name: ["raw"] } }), "The name needs")
  })
})
