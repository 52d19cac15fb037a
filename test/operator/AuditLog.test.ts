import { withoutAddresses } from "#interfaces/operator/AuditLog"
import { assert, it } from "@effect/vitest"

it("the audit log keeps what an operator asked for, without e-mail addresses", () => {
  const written: ReadonlyArray<readonly [string, string]> = [
    ["?handle=mona&limit=5", "?handle=mona&limit=5"],
    ["?handle=@mona", "?handle=@mona"],
    ["?handle=%40mona", "?handle=%40mona"],
    ["/console/api/agents/@mona/suspend", "/console/api/agents/@mona/suspend"],
    // Any beginning of an address.
    ["?email=m", "?email=****"],
    ["?email=mona%40example.com&limit=5", "?email=****&limit=5"],
    ["?limit=5&email=mona/x?y@example.com", "?limit=5&email=****"],
    ["?email=", "?email=****"],
    ["?email=a&email=b", "?email=****&email=****"],
    // An address in another place.
    ["?handle=mona@example.com&order=handle", "?handle=****&order=handle"],
    ["?%65mail=mona%40example.com", "?%65mail=****"],
    ["?agent=Mona%2Bx%40Example.com", "?agent=****"],
    ["/console/api/agents/mona%40example.com/suspend", "/console/api/agents/****/suspend"],
    ["/console/api/agents/mona@example.com/erase?x=1", "/console/api/agents/****/erase?x=1"]
  ]
  for (const [url, kept] of written) assert.strictEqual(withoutAddresses(url), kept)
})
