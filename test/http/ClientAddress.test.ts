import { addressKey, clientAddress } from "#infrastructure/http/ClientAddress"
import { assert, describe, it } from "@effect/vitest"

describe("the client's address", () => {
  it("is the peer's when no proxy is trusted, whatever a header claims", () => {
    assert.strictEqual(clientAddress("192.0.2.1", "198.51.100.1", 0), "192.0.2.1")
    assert.strictEqual(clientAddress("192.0.2.1", undefined, 0), "192.0.2.1")
  })

  it("is the entry that the outermost trusted proxy wrote", () => {
    const header = "6.6.6.6, 198.51.100.1,203.0.113.2 , 10.0.0.1"
    assert.strictEqual(clientAddress("10.0.0.2", header, 1), "10.0.0.1")
    assert.strictEqual(clientAddress("10.0.0.2", header, 2), "203.0.113.2")
    assert.strictEqual(clientAddress("10.0.0.2", header, 3), "198.51.100.1")
  })

  it("is never an entry left of the trusted ones", () => {
    assert.strictEqual(clientAddress("10.0.0.2", "6.6.6.6, 198.51.100.1", 1), "198.51.100.1")
    assert.strictEqual(clientAddress("10.0.0.2", `${"6.6.6.6, ".repeat(500)}198.51.100.1`, 1), "198.51.100.1")
  })

  it("is the first entry when there are fewer than proxies, and the peer's when there is none that is an address", () => {
    assert.strictEqual(clientAddress("10.0.0.2", "198.51.100.1", 3), "198.51.100.1")
    for (const header of [undefined, "", " ", "unknown", "_hidden", "198.51.100.1, nonsense", "1.2.3.4.5"]) {
      assert.strictEqual(clientAddress("10.0.0.2", header, 1), "10.0.0.2")
    }
    assert.strictEqual(clientAddress(undefined, undefined, 0), "unknown")
  })

  it("is written in one way", () => {
    for (
      const [written, meant] of [
        ["198.51.100.1:4711", "198.51.100.1"],
        ["[2001:db8::1]:4711", "2001:db8::1"],
        ["[2001:db8::1]", "2001:db8::1"],
        ["2001:DB8:0:0:0:0:0:1", "2001:db8::1"],
        ["fe80::1%eth0", "fe80::1"],
        ["::ffff:198.51.100.1", "198.51.100.1"],
        ["::FFFF:C633:6401", "198.51.100.1"],
        ["0:0:0:0:0:ffff:198.51.100.1", "198.51.100.1"],
        ["[::ffff:198.51.100.1]:4711", "198.51.100.1"],
        ["::1", "::1"]
      ] as const
    ) {
      assert.strictEqual(clientAddress(written, undefined, 0), meant)
      assert.strictEqual(clientAddress("10.0.0.2", written, 1), meant)
    }
  })
})

describe("the key of limits per address", () => {
  it("is the address for IPv4, and the subscriber's network for IPv6", () => {
    assert.strictEqual(addressKey("198.51.100.1"), "198.51.100.1")
    assert.strictEqual(addressKey("unknown"), "unknown")
    const same = ["2001:db8:1:2::1", "2001:db8:1:2:ffff:ffff:ffff:ffff", "2001:db8:1:2::"]
    assert.strictEqual(new Set(same.map(addressKey)).size, 1)
    const others = ["2001:db8:1:3::1", "2001:db8:1::1", "2001:db8::1", "::1", "1::", "1:2:3:4:5:6:7:8"]
    assert.strictEqual(new Set([...same, ...others].map(addressKey)).size, 1 + others.length)
  })
})
