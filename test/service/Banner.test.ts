import { assert, it } from "@effect/vitest"
import { codes, registration } from "../../runners/Start.ts"

const URL = "http://127.0.0.1:3000"

it("the banner shows how to register only where everybody may, with an address that is admitted", () => {
  const shown = (REGISTRATION: "open" | "invite" | "closed", REGISTRATION_DOMAINS: ReadonlyArray<string> = []) =>
    registration({ REGISTRATION, REGISTRATION_DOMAINS }, URL)
  assert.strictEqual(
    shown("open").at(-1),
    `  curl -s ${URL}/v1/register -d '{"email":"ada@example.com","handle":"ada"}'`
  )
  assert.include(shown("open", ["acme.example", "example.com"]).at(-1), `"email":"ada@acme.example"`)
  assert.deepStrictEqual([shown("invite"), shown("closed")], [[], []])
})

it("the banner says where codes are, and speaks of no registrations where nobody may register", () => {
  const shown = (REGISTRATION: "open" | "invite" | "closed", outbox?: string) =>
    codes({ REGISTRATION, REGISTRATION_DOMAINS: [] }, outbox)
  assert.strictEqual(
    shown("open", "/data/outbox"),
    "Codes of registrations are shown here, and the mails with them are files in /data/outbox"
  )
  assert.strictEqual(shown("invite"), "Codes of registrations come by mail.")
  assert.strictEqual(shown("closed"), "Codes for new keys come by mail.")
})
