import { signedHeaders, standardKey } from "#domain/webhooks/Signature"
import { assert, describe, it } from "@effect/vitest"
import { createHmac } from "node:crypto"

describe("the signatures of a post", () => {
  const body = '{"test": 2432232314}'
  const post = {
    body,
    event: "message.new",
    deliveryId: "msg_p5jXN8AQM9LWM0D4loKWxJek",
    at: 1_614_265_330,
    requestId: null
  }
  const signed = (secret: string | undefined) => signedHeaders({ ...post, secret })
  const hmac = (key: string | Buffer, text: string) => createHmac("sha256", key).update(text)

  it("a whsec_ secret signs as the example of Standard Webhooks", () => {
    const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    const headers = signed(secret)
    assert.deepInclude(headers, {
      "webhook-id": post.deliveryId,
      "webhook-timestamp": "1614265330",
      "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    })
    // AgentChat's two signatures use the whole secret as text.
    assert.strictEqual(
      headers["Agentchat-Signature"],
      `t=${post.at},v1=${hmac(secret, `${post.at}.${body}`).digest("hex")}`
    )
    assert.strictEqual(headers["X-AgentChat-Signature"], hmac(secret, body).digest("hex"))
  })

  it("any other secret signs as its UTF-8 text, also one that begins with whsec_ and is no base64", () => {
    for (
      const secret of [
        "sixteen letters!",
        "é ü 😀 sixteen letters",
        "0f".repeat(32),
        "whsec_",
        "whsec_no base64, sorry!"
      ]
    ) {
      const expected = hmac(Buffer.from(secret, "utf8"), `${post.deliveryId}.${post.at}.${body}`).digest("base64")
      assert.strictEqual(signed(secret)["webhook-signature"], `v1,${expected}`, secret)
    }
  })

  it("a short key after whsec_ is taken here, and not for MCP Events", () => {
    const secret = `whsec_${Buffer.alloc(12, 7).toString("base64")}`
    assert.strictEqual(
      signed(secret)["webhook-signature"],
      `v1,${hmac(Buffer.alloc(12, 7), `${post.deliveryId}.${post.at}.${body}`).digest("base64")}`
    )
    assert.isUndefined(standardKey(secret))
  })

  it("without a secret nothing is signed", () => {
    assert.deepStrictEqual(Object.keys(signed(undefined)), [
      "content-type",
      "user-agent",
      "X-AgentChat-Event",
      "X-AgentChat-Delivery"
    ])
  })
})
