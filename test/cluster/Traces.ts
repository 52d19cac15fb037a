import { catalogue } from "#infrastructure/platform/Metrics"
import { afterAll, assert, beforeAll, it } from "@effect/vitest"
import { randomBytes } from "node:crypto"
import type { Collector } from "../support/Collector.ts"
import { eventually } from "../support/Eventually.ts"
import { type Cluster, on } from "../support/Nodes.ts"
import { Receiver } from "../support/Receiver.ts"
import { newAgent, type TestAgent } from "../support/Server.ts"
import { Socket } from "../support/Socket.ts"

const SERVER = 2

/** A caller's trace context, and its parts. */
const caller = (flags = "01") => {
  const traceId = randomBytes(16).toString("hex")
  const spanId = randomBytes(8).toString("hex")
  return { traceId, spanId, header: { traceparent: `00-${traceId}-${spanId}-${flags}` } }
}

/** The settings of a cluster that tells a collector. */
export const tellingTo = (collector: Collector): Readonly<Record<string, string>> => ({
  OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
  OTEL_EXPORTER_OTLP_HEADERS: "x-tenant=a%20test",
  OTEL_SERVICE_NAME: "parley-tested",
  // Only callers that ask for it are traced.
  OTEL_TRACES_SAMPLER: "parentbased_always_off"
})

/** What two nodes tell a collector and Prometheus. */
export const traces = (started: () => { readonly cluster: Cluster; readonly collector: Collector }): void => {
  let collector: Collector
  let receiver: Receiver
  let cluster: Cluster
  let ada: TestAgent
  let bob: TestAgent
  let socket: Socket

  beforeAll(async () => {
    ;({ cluster, collector } = started())
    receiver = await Receiver.start()
    const [one, two] = cluster.pair
    ada = await newAgent(one, "ada")
    bob = await newAgent(two, "bob")
    const made = await bob.http.post("/v1/webhooks", { url: receiver.url("/hook"), events: ["message.new"] })
    assert.isBelow(made.status, 300, `${made}`)
    socket = await Socket.hello(two, bob.key)
    await say(ada, "the first word", {})
    const answer = await bob.http.post("/v1/messages", {
      to: ada.handle,
      client_msg_id: "a",
      type: "text",
      content: { text: "an answer" }
    })
    assert.isBelow(answer.status, 300, `${answer}`)
    await eventually("the post of the first word", () => receiver.posts.length > 0 || undefined)
  })
  afterAll(async () => {
    await socket?.close()
    receiver?.stop()
  })

  const say = async (from: TestAgent, text: string, headers: Readonly<Record<string, string>>) => {
    const answer = await from.http.post("/v1/messages", {
      to: bob.handle,
      client_msg_id: `${text}-${Math.random()}`,
      type: "text",
      content: { text }
    }, headers)
    assert.isBelow(answer.status, 300, `${answer}`)
    return answer.body as { readonly id: string }
  }

  it("a send that crosses nodes and ends in a webhook is one connected trace under its caller's", async () => {
    // The owner alone decides about a first message: if it comes to the other node, it crosses. Who the owner is, is
    // chance.
    let crossed: ReturnType<typeof caller> | undefined
    for (let n = 0; crossed === undefined && n < 20; n++) {
      const trace = caller()
      const { id } = await say(
        n === 0 ? ada : await newAgent(cluster.nodes[0]!, `stranger-${n}`),
        "a word that nobody may see",
        trace.header
      )
      await socket.message(id)
      const post = await eventually(
        "a post under the trace",
        () => receiver.posts.find(({ headers }) => String(headers["traceparent"]).includes(trace.traceId))
      )
      await eventually("the spans of the whole way", () => {
        const names = collector.of(trace.traceId).map(({ name }) => name)
        return ["POST /v1/messages", "decide", "commit", "push", "webhook"].every((name) => names.includes(name)) ||
          undefined
      }).catch((error: unknown) =>
        assert.fail(`${String(error)}: ${collector.of(trace.traceId).map(({ name }) => name)}`)
      )
      const spans = collector.of(trace.traceId)
      const ids = new Set([trace.spanId, ...spans.map(({ spanId }) => spanId)])
      for (const { name, parentSpanId } of spans) assert.isTrue(ids.has(parentSpanId ?? ""), `${name} hangs in the air`)
      const request = spans.find(({ kind, name }) => kind === SERVER && name === "POST /v1/messages")!
      assert.strictEqual(request.parentSpanId, trace.spanId)
      const webhook = spans.find(({ name }) => name === "webhook")!
      assert.strictEqual(post.headers["traceparent"], `00-${trace.traceId}-${webhook.spanId}-01`)
      // A request id goes with it as before, and alone.
      assert.match(String(post.headers["x-request-id"]), /^[!-~]+$/)
      const batch = spans.find(({ name }) => name === "batch of message")!
      assert.isTrue(
        spans.some(({ links, name }) => name === "commit" && links.some(({ spanId }) => spanId === batch.spanId))
      )
      for (const { endTimeUnixNano, startTimeUnixNano } of spans)
        assert.isAtLeast(Number(endTimeUnixNano), Number(startTimeUnixNano))
      if (request.node !== spans.find(({ name }) => name === "decide")!.node) crossed = trace
    }
    const spans = collector.of(crossed!.traceId)
    assert.lengthOf([...new Set(spans.map(({ node }) => node))], 2)
  })

  it("a trace that its caller does not sample is handed on to the webhook, and not exported", async () => {
    for (const node of cluster.nodes) {
      const trace = caller("00")
      await say(on(node, ada), "quietly", trace.header)
      const post = await eventually(
        "a post under the trace",
        () => receiver.posts.find(({ headers }) => String(headers["traceparent"]).includes(trace.traceId))
      )
      assert.strictEqual(post.headers["traceparent"], trace.header.traceparent)
      assert.isEmpty(collector.of(trace.traceId))
    }
  })

  it("a send without a traceparent, or with a broken one, has no trace here", async () => {
    const before = receiver.posts.length
    await say(ada, "plainly", {})
    await say(ada, "brokenly", { traceparent: "00-00000000000000000000000000000000-0000000000000000-01" })
    await eventually("both posts", () => receiver.posts.length >= before + 2 || undefined)
    for (const { headers } of receiver.posts.slice(before)) assert.isUndefined(headers["traceparent"])
  })

  it("a refusal is a span with its status; its route is a template", async () => {
    const trace = caller()
    await ada.http.get(`/v1/messages/${"m".repeat(40)}/reads`, trace.header)
    await ada.http.get("/v1/agents/nobody-of-this-name", trace.header)
    const spans = await eventually(
      "the spans",
      () => collector.of(trace.traceId).length >= 2 ? collector.of(trace.traceId) : undefined
    )
    assert.includeMembers(spans.map(({ name }) => name), ["GET /v1/agents/{handle}"])
    const codes = spans.flatMap(({ attributes }) => attributes.filter(({ key }) => key === "http.response.status_code"))
    assert.includeDeepMembers(codes, [{ key: "http.response.status_code", value: { intValue: "404" } }])
  })

  it("a span holds no key, no body, no handle and no address", () => {
    assert.isNotEmpty(collector.texts)
    const all = collector.texts.join("\n")
    for (
      const secret of [
        ada.key,
        bob.key,
        ada.handle,
        bob.handle,
        bob.email,
        "nobody may see",
        "quietly",
        "nobody-of-this-name",
        receiver.url("/hook")
      ]
    ) {
      assert.notInclude(all, secret)
    }
    assert.strictEqual(collector.headers[0]?.["x-tenant"], "a test")
    assert.include(all, "parley-tested")
  })

  it("prints each metric of the catalogue and no other, with these labels and no handle in them", async () => {
    for (const node of cluster.nodes) {
      const { text } = await node.http().get("/internal/metrics")
      const kinds = new Map(Array.from(text.matchAll(/^# TYPE (\S+) (\S+)$/gm), ([, name, kind]) => [name!, kind!]))
      const known = new Map(
        catalogue.flatMap(({ metrics }) =>
          metrics.map(({ description: { name }, kind, labelNames }) => [name, { kind: kind as string, labelNames }])
        )
      )
      // What Effect's cluster counts is there once it has happened.
      for (const [name, { kind }] of known) {
        if (!name.startsWith("effect_") || kinds.has(name)) assert.strictEqual(kinds.get(name), kind, name)
      }
      assert.deepStrictEqual([...kinds.keys()].filter((name) => !known.has(name)), [])
      for (const [, name, labels] of text.matchAll(/^([a-z_]+)(?:\{(.*)\})? \S+$/gm)) {
        const family = known.get(name!) ?? known.get(name!.replace(/_(?:bucket|sum|count)$/, ""))!
        if (name!.startsWith("effect_")) continue
        const given = Array.from((labels ?? "").matchAll(/(\w+)="/g), ([, label]) => label!).filter((label) =>
          label !== "le"
        )
        assert.deepStrictEqual(given, [...family.labelNames], name)
      }
      for (const secret of [ada.handle, bob.handle, "127.0.0.1"]) assert.notInclude(text, secret)
      assert.match(text, /^http_request_seconds_count\{method="POST",route="\/v1\/messages"\} [1-9]/m)
    }
  })
}
