import { documentUrl } from "#domain/oauth/ClientDocument"
import { isOwnResource } from "#domain/oauth/Discovery"
import { redirectUriOf } from "#domain/oauth/RedirectUri"
import { parseTarget } from "#infrastructure/http/PrivateAddressGuard"
import { absoluteUrl, queryOf } from "#infrastructure/wire/AbsoluteUrl"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"

const isTarget = (text: string): boolean => Effect.runSync(Effect.isSuccess(parseTarget(text)))

describe("a URL that comes from outside", () => {
  it("is one that is written as scheme, authority and the rest", () => {
    for (
      const [text, host] of [
        ["https://host.test", "host.test"],
        ["HTTPS://Host.Test/a?b=c#d", "host.test"],
        ["http://127.0.0.1:80/x", "127.0.0.1"],
        ["https://[::1]:9/", "[::1]"],
        ["https://bücher.test/ü?ü", "xn--bcher-kva.test"],
        ["https://host.test?x", "host.test"],
        ["https://host.test/@a", "host.test"],
        ["app://part/x", "part"]
      ] as const
    ) assert.strictEqual(absoluteUrl(text)?.hostname, host, text)
  })

  it("is not what a lenient parser makes a URL of", () => {
    const lenient = [
      "https:evil.test/cb",
      "https:/evil.test/cb",
      "https:///evil.test/cb",
      "https:////evil.test/cb",
      "https:\\\\evil.test/cb",
      "https:/\\evil.test/cb",
      "https://evil.test\\@good.test/cb",
      "https://good.test/\\evil.test",
      "https://ev\til.test/cb",
      "https://ev\nil.test/cb",
      "ht\ntps://evil.test/cb",
      " https://evil.test/cb",
      "https://evil.test/cb ",
      "\u0000https://evil.test/cb",
      "https://evil.test/c\u0000b",
      "https://evil.test/c\u007fb",
      "https://evil.test/a b",
      "https://evil.test/a\u2028b",
      "https://evil.test/\ud800",
      "https://user@evil.test/cb",
      "https://user:pw@evil.test/cb",
      "https://@evil.test/cb",
      "https://:@evil.test/cb",
      "https://",
      "https:///",
      "https://?x",
      "https://#x",
      "https://:80/cb",
      "//evil.test/cb",
      "evil.test/cb",
      "/cb",
      ""
    ]
    for (const text of lenient) {
      assert.isUndefined(absoluteUrl(text), JSON.stringify(text))
      assert.isUndefined(redirectUriOf(text, ["vscode"]), JSON.stringify(text))
      assert.isUndefined(documentUrl(text), JSON.stringify(text))
      assert.isFalse(isTarget(text), JSON.stringify(text))
      assert.isFalse(isOwnResource("https://evil.test/cb", [text]), JSON.stringify(text))
    }
  })

  it("may have any scheme, and those who take it say which", () => {
    for (
      const text of [
        "ftp://host.test/x",
        "javascript://host.test/%0aalert(1)",
        "file://host/etc/passwd",
        "ws://host.test/"
      ]
    ) {
      assert.isFalse(isTarget(text), text)
      assert.isUndefined(redirectUriOf(text, ["vscode"]), text)
      assert.isUndefined(documentUrl(text), text)
    }
  })
})

describe("the query of a request's target", () => {
  it("is read whatever comes before it", () => {
    for (
      const target of ["/authorize?a=b%20c", "//[/authorize?a=b%20c", "http://[/authorize?a=b%20c#d?a=e", "?a=b+c"]
    ) {
      assert.strictEqual(queryOf(target).get("a"), "b c", target)
    }
    assert.strictEqual(queryOf("/authorize").size, 0)
  })
})
