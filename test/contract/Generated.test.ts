import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import { createHash } from "node:crypto"
import { request as httpRequest } from "node:http"
import { Answer } from "../support/Http.ts"
import { patient } from "../support/Patient.ts"
import { newAgent, type Server, startServer } from "../support/Server.ts"
import { type OpenApiDocument, type Operation, operationsOf, Promises } from "./Document.ts"
import { fromSchema, junkHeaders, junkJson, junkQuery, junkSegment } from "./FromSchema.ts"
import { type Call, diceOf, filled, type LiveWorld, makeWorld, plans } from "./LiveWorld.ts"

/** How many pairs of a valid and a spoilt request each operation gets. */
const RUNS = Number(process.env["GENERATED_RUNS"] ?? "3")
const SEED = process.env["SEED"] === undefined ? Math.trunc(Math.random() * 2 ** 31) : Number(process.env["SEED"])
/** Operations that are tried side by side. */
const WIDTH = 6
/** Least share of each operation's requests that must be granted. */
const GRANTED = 0.3

/** One thing that is wrong with a request. */
type Spoil =
  | { readonly kind: "nothing" }
  | { readonly kind: "stranger" }
  | { readonly kind: "foreign"; readonly at: number }
  | { readonly kind: "segment"; readonly at: number; readonly segment: string }
  | { readonly kind: "query"; readonly at: number; readonly value: string }
  | { readonly kind: "header"; readonly headers: Readonly<Record<string, string>> }
  | { readonly kind: "drop"; readonly at: number }
  | { readonly kind: "field"; readonly at: number; readonly json: string }
  | { readonly kind: "whole"; readonly json: string }
  | { readonly kind: "bytes"; readonly bytes: Uint8Array }

interface Recipe {
  readonly body: unknown
  readonly dice: ReadonlyArray<number>
  readonly key: string | undefined
  /** Whether a granted request with a key is sent again. */
  readonly repeat: boolean
  readonly spoil: Spoil
}

interface Request {
  readonly key: string | undefined
  readonly target: string
  readonly headers: Readonly<Record<string, string>>
  readonly body: Uint8Array<ArrayBuffer> | undefined
}

const bytes = (text: string): Uint8Array<ArrayBuffer> => new TextEncoder().encode(text)

const spoils = (operation: Operation): fc.Arbitrary<Spoil> => {
  const at = fc.nat({ max: 50 })
  const ways: Array<fc.WeightedArbitrary<Spoil>> = [
    { weight: 2, arbitrary: fc.record({ kind: fc.constant("header" as const), headers: junkHeaders }) },
    { weight: 1, arbitrary: fc.record({ kind: fc.constant("query" as const), at: fc.constant(-1), value: junkQuery }) }
  ]
  if (operation.needsKey) ways.push({ weight: 1, arbitrary: fc.constant({ kind: "stranger" as const }) })
  if (operation.pathParameters.length > 0) {
    ways.push(
      { weight: 3, arbitrary: fc.record({ kind: fc.constant("segment" as const), at, segment: junkSegment }) },
      { weight: 2, arbitrary: fc.record({ kind: fc.constant("foreign" as const), at }) }
    )
  }
  if (operation.query.length > 0) {
    ways.push({ weight: 5, arbitrary: fc.record({ kind: fc.constant("query" as const), at, value: junkQuery }) })
  }
  if (operation.body !== undefined) {
    ways.push(
      { weight: 1, arbitrary: fc.record({ kind: fc.constant("drop" as const), at }) },
      { weight: 6, arbitrary: fc.record({ kind: fc.constant("field" as const), at, json: junkJson }) },
      { weight: 2, arbitrary: fc.record({ kind: fc.constant("whole" as const), json: junkJson }) },
      {
        weight: 1,
        arbitrary: fc.record({ kind: fc.constant("bytes" as const), bytes: fc.uint8Array({ maxLength: 40 }) })
      }
    )
  }
  if (operation.raw) {
    ways.push({
      weight: 6,
      arbitrary: fc.record({ kind: fc.constant("bytes" as const), bytes: fc.uint8Array({ maxLength: 200 }) })
    })
  }
  return fc.oneof(...ways)
}

/** A valid request and a spoilt one, in turn: so that half of them can be granted, by construction. */
const recipes = (document: OpenApiDocument, operation: Operation): fc.Arbitrary<ReadonlyArray<Recipe>> => {
  const recipe = (spoil: fc.Arbitrary<Spoil>): fc.Arbitrary<Recipe> =>
    fc.record({
      body: operation.body === undefined ? fc.constant(undefined) : fromSchema(document, operation.body),
      dice: fc.array(fc.nat(), { minLength: 12, maxLength: 12 }),
      key: operation.takesIdempotencyKey ? fc.option(fc.uuid(), { nil: undefined }) : fc.constant(undefined),
      repeat: fc.nat({ max: 2 }).map((n) => n === 0),
      spoil
    })
  return fc.tuple(recipe(fc.constant({ kind: "nothing" })), recipe(spoils(operation)))
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value)

/** JSON text of a value in which one thing, anywhere in it, is replaced by this text, or left out. */
const replaced = (value: unknown, at: number, json: string | undefined): string => {
  const places: Array<string> = []
  const mark = "5f1c7e8a-here"
  const walk = (inner: unknown, path: string): void => {
    if (!isObject(inner)) return
    for (const name of Object.keys(inner)) {
      places.push(`${path}/${name}`)
      walk(inner[name], `${path}/${name}`)
    }
  }
  walk(value, "")
  if (json !== undefined) places.push("/__proto__", "/id", "/constructor")
  if (places.length === 0) return json ?? "{}"
  const chosen = places[at % places.length]
  const copy = (inner: unknown, path: string): unknown => {
    if (!isObject(inner)) return inner
    const entries = Object.entries(inner).filter(([name]) => json !== undefined || `${path}/${name}` !== chosen)
    return Object.fromEntries(
      entries.map(([name, field]) =>
        [name, `${path}/${name}` === chosen ? mark : copy(field, `${path}/${name}`)] as const
      )
    )
  }
  const text = JSON.stringify(copy(value, "")) ?? "null"
  if (json === undefined) return text
  if (text.includes(`"${mark}"`)) return text.replace(`"${mark}"`, () => json)
  return text.replace(/^\{/, () => `{${JSON.stringify(chosen?.slice(1))}:${json}${text === "{}" ? "" : ","}`)
}

const requestOf = (operation: Operation, call: Call, recipe: Recipe, world: LiveWorld): Request => {
  const { spoil } = recipe
  const names = operation.pathParameters
  const target = operation.path.replaceAll(/\{(\w+)\}/g, (_, name: string) => {
    const hit = "at" in spoil && names[spoil.at % names.length] === name
    if (spoil.kind === "segment" && hit) return spoil.segment
    if (spoil.kind === "foreign" && hit) return world.foreign[spoil.at % world.foreign.length] ?? ""
    return encodeURIComponent(call.path?.[name] ?? assert.fail(`${operation.name}: no ${name}`))
  })
  const query = Object.entries(call.query ?? {}).flatMap(([name, value]) =>
    value === undefined ? [] : [[name, encodeURIComponent(value)] as const]
  )
  const spoiltQuery = spoil.kind !== "query" ? query : [
    ...query,
    [
      spoil.at < 0 ? "surplus" : operation.query[spoil.at % operation.query.length]?.name ?? "surplus",
      spoil.value
    ] as const
  ].filter(([name], at, all) =>
    // Twice the same name now and then.
    spoil.at % 5 === 0 || all.findLastIndex((one) => one[0] === name) === at
  )
  const search = spoiltQuery.map(([name, value]) => `${name}=${value}`).join("&")
  const generated = filled(recipe.body, call.body)
  const json = operation.body === undefined ? undefined : bytes(
    spoil.kind === "whole" ?
      spoil.json
      : spoil.kind === "drop" ?
      replaced(generated, spoil.at, undefined)
      : spoil.kind === "field" ?
      replaced(generated, spoil.at, spoil.json)
      : JSON.stringify(generated)
  )
  return {
    key: (spoil.kind === "stranger" ? world.stranger : call.as)?.key,
    target: search === "" ? target : `${target}?${search}`,
    headers: {
      ...(json === undefined ? {} : { "content-type": "application/json" }),
      ...(recipe.key === undefined ? {} : { "idempotency-key": recipe.key }),
      ...(spoil.kind === "header" ? spoil.headers : {})
    },
    body: spoil.kind === "bytes" ? new Uint8Array(spoil.bytes) : call.raw ?? json
  }
}

/** A request to open the socket; an opened one is closed at once. */
const upgrade = (server: Server, { headers, key, target }: Request): Promise<Answer> =>
  new Promise((resolve, reject) => {
    const authorization = key === undefined ? {} : { authorization: `Bearer ${key}` }
    const sent = httpRequest(`${server.url}${target}`, {
      agent: false,
      headers: {
        ...authorization,
        ...headers,
        "connection": "upgrade",
        "upgrade": "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": Buffer.alloc(16).toString("base64")
      }
    })
    const done = (status: number | undefined, raw: ReadonlyArray<string>, text: string) => {
      const received = new Headers()
      for (let at = 0; at + 1 < raw.length; at += 2) received.append(raw[at] ?? "", raw[at + 1] ?? "")
      try {
        resolve(new Answer(`GET ${target}`, status ?? 0, received, text))
      } catch (error) {
        reject(error instanceof Error ? error : new Error(String(error)))
      }
    }
    sent.on("error", reject)
    sent.on("upgrade", (response, socket) => {
      socket.destroy()
      done(response.statusCode, response.rawHeaders, "")
    })
    sent.on("response", (response) => {
      let text = ""
      response.setEncoding("utf8").on("data", (part: string) => text += part).on(
        "end",
        () => done(response.statusCode, response.rawHeaders, text)
      )
    })
    sent.end()
  })

const sent = (server: Server, { method }: Operation, { body: raw, headers, key, target }: Request): Promise<Answer> =>
  server.http(key).request(method, target, raw === undefined ? { headers } : { raw, headers })

/** What became of the requests of one operation. */
interface Tally {
  readonly name: string
  readonly seen: Map<number, number>
  failure: string | undefined
}

const requestsOf = ({ seen }: Tally): number => [...seen.values()].reduce((sum, n) => sum + n, 0)

/** An opened socket and a redirect to a file are what was asked for too. */
const shareOf = ({ seen }: Tally): number =>
  [...seen].reduce((sum, [status, n]) => status < 400 ? sum + n : sum, 0) /
  requestsOf({ name: "", seen, failure: undefined })

const tableOf = (tallies: ReadonlyArray<Tally>): string => {
  const width = Math.max(...tallies.map(({ name }) => name.length))
  return tallies.map((tally) => {
    const statuses = [...tally.seen].sort(([one], [other]) => one - other).map(([status, n]) => `${status}×${n}`).join(
      " "
    )
    const share = `${Math.round(100 * shareOf(tally))} %`
    return `${tally.name.padEnd(width)} ${String(requestsOf(tally)).padStart(5)} ${share.padStart(5)}  ${statuses}`
  }).join("\n")
}

const told = (problem: string, recipe: Recipe, request: Request, answer: Answer): string => {
  const body = request.body === undefined ? "" : Buffer.from(request.body).toString("utf8")
  const shown = body.length > 400 ? `${body.slice(0, 400)}… (${body.length} characters)` : body
  return `${problem}\n${answer}\n${JSON.stringify(recipe.spoil).slice(0, 300)}\n${
    JSON.stringify(request.headers)
  } ${shown}`
}

describe("requests generated from the OpenAPI document", () => {
  let server: Server

  beforeAll(async () => {
    server = await startServer({
      env: {
        LIMITS_MUTE_WRITES_PER_SECOND: "1000000",
        LIMITS_REACTIONS_PER_MINUTE: "1000000",
        LIMITS_MUTES_PER_AGENT: "1000000",
        LIMITS_GROUP_INVITES_PER_DAY: "1000000",
        LIMITS_AVATAR_WRITES_PER_MINUTE: "1000000",
        LIMITS_OTP_PER_HOUR: "1000000",
        LIMITS_OTP_ATTEMPTS: "1000000",
        LIMITS_OTP_ATTEMPTS_PER_CODE: "1000000",
        LIMITS_SOCKETS_PER_AGENT: "1000000",
        LIMITS_OTP_COOLDOWN_SECONDS: "0",
        LIMITS_STORAGE_PER_AGENT: "1000000000000",
        WEBHOOK_ALLOW_PRIVATE: "loopback"
      }
    })
  })
  afterAll(() => server.stop())

  it("are answered as documented, many of them granted, and none breaks the server", {
    timeout: 60_000 + RUNS * 20_000
  }, async () => {
    const document = (await server.http().get("/v1/openapi.json")).body as OpenApiDocument
    const operations = operationsOf(document)
    assert.isAbove(operations.length, 50)
    const promises = new Promises(document)
    const world = await makeWorld(server)
    assert.deepStrictEqual(
      operations.filter(({ name }) => plans[name] === undefined).map(({ name }) => name),
      [],
      "operations that LiveWorld.ts does not know how to have granted"
    )

    const check = (operation: Operation, recipe: Recipe, request: Request, answer: Answer, tally: Tally): void => {
      tally.seen.set(answer.status, (tally.seen.get(answer.status) ?? 0) + 1)
      const problem = answer.status >= 500 ? "a failure of the server" : promises.problem(operation, answer)
      if (problem !== undefined) assert.fail(told(problem, recipe, request, answer))
    }

    const exchange = async (operation: Operation, recipe: Recipe, tally: Tally): Promise<void> => {
      const call = await plans[operation.name]?.(world, diceOf(recipe.dice)) ?? {}
      const request = requestOf(operation, call, recipe, world)
      const valid = recipe.spoil.kind === "nothing"
      const answer = operation.path === "/v1/ws"
        ? await upgrade(server, request)
        : await sent(server, operation, request)
      check(operation, recipe, request, answer, tally)
      call.done?.(answer)
      if (valid && answer.status >= 400) assert.fail(told("a valid request was refused", recipe, request, answer))
      // A deleted account has no key to ask again with.
      if (!valid || recipe.key === undefined || !recipe.repeat || operation.name === "DELETE /v1/agents/{handle}")
        return
      const again = await sent(server, operation, request)
      check(operation, recipe, request, again, tally)
      if (
        again.header("idempotent-replay") !== "true" || again.text !== answer.text || again.status !== answer.status
      ) {
        assert.fail(told("a repetition was answered otherwise", recipe, request, again))
      }
      if (operation.body === undefined) return
      const other = { ...request, body: bytes(`${Buffer.from(request.body ?? []).toString()} `) }
      const conflict = await sent(server, operation, other)
      check(operation, recipe, other, conflict, tally)
      if (conflict.status !== 422) assert.fail(told("another body passed under the same key", recipe, other, conflict))
    }

    const tallies = operations.map(({ name }): Tally => ({ name, seen: new Map(), failure: undefined }))
    const waiting = operations.map((operation, at) => [operation, at] as const)
    const work = async (): Promise<void> => {
      for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) {
        const [operation, at] = next
        const tally = tallies[at]
        if (tally === undefined) continue
        const property = fc.asyncProperty(recipes(document, operation), async (pair) => {
          for (const recipe of pair) await exchange(operation, recipe, tally)
        })
        // The world has moved on after a failure: smaller requests would meet another one.
        const found = await fc.check(property, { seed: SEED + at, numRuns: RUNS, endOnFailure: true })
        if (found.failed)
          tally.failure = `${operation.name}, request ${found.counterexamplePath}: ${String(found.errorInstance)}`
      }
    }
    await Promise.all(Array.from({ length: WIDTH }, work))

    console.log(`${tableOf(tallies)}\nThe same requests again: SEED=${SEED} GENERATED_RUNS=${RUNS}`)
    const failures = tallies.flatMap(({ failure }) => failure ?? [])
    if (failures.length > 0) assert.fail(`SEED=${SEED}\n\n${failures.join("\n\n")}`)
    assert.deepStrictEqual(
      tallies.filter((tally) => shareOf(tally) < GRANTED).map(({ name }) => name),
      [],
      `seldom granted, SEED=${SEED}`
    )
    assert.deepStrictEqual(
      server.log.split("\n").filter((line) => /"level":"(error|fatal)"/.test(line)),
      [],
      "logged errors"
    )
  })

  it(
    "store only the announced bytes at signed URLs, and only the signed URL serves them",
    async () => {
      const [from, to] = await Promise.all([newAgent(server, "from"), newAgent(server, "to")])
      const put = async (url: string, body: Uint8Array<ArrayBuffer>): Promise<Answer> => {
        const response = await patient(url, { method: "PUT", body })
        return new Answer("PUT signed URL", response.status, response.headers, await response.text())
      }
      const some = fc.uint8Array({ minLength: 1, maxLength: 3_000 }).map((array) => new Uint8Array(array))
      const spoilt = fc.record({ at: fc.nat(), by: fc.integer({ min: 1, max: 255 }), cut: fc.boolean() })
      await fc.assert(
        fc.asyncProperty(some, spoilt, fc.option(junkSegment, { nil: undefined }), async (file, spoil, segment) => {
          const reserved = await from.http.post("/v1/uploads", {
            to: to.handle,
            filename: "file",
            content_type: "application/pdf",
            size: file.length,
            sha256: createHash("sha256").update(file).digest("hex")
          })
          const { attachment_id, upload_url } = reserved.body as {
            readonly attachment_id: string
            readonly upload_url: string
          }
          // Another character within the token, whose last one may hold bits that mean nothing.
          const at = upload_url.lastIndexOf("/") + 1
          const token = upload_url.slice(at)
          const place = spoil.at % (token.length - 1)
          const forged = token.slice(0, place) + (token[place] === "A" ? "B" : "A") + token.slice(place + 1)
          const wrong = spoil.cut
            ? file.slice(0, -1)
            : file.map((byte, i) => i === spoil.at % file.length ? byte ^ spoil.by : byte)
          ;(await put(upload_url, wrong)).refused(400, spoil.cut ? "SIZE_MISMATCH" : "CHECKSUM_MISMATCH")
          ;(await put(upload_url.slice(0, at) + forged, file)).refused(403, "FORBIDDEN")
          if (segment !== undefined)
            assert.include([400, 403, 404], (await put(upload_url.slice(0, at) + segment, file)).status)
          ;(await to.http.get(`/v1/attachments/${attachment_id}`)).refused(404, "NOT_FOUND")
          assert.strictEqual((await put(upload_url, file)).status, 200)
          ;(await put(upload_url, file)).refused(409, "ALREADY_UPLOADED")
          const { headers } = await to.http.get(`/v1/attachments/${attachment_id}`)
          const served = await fetch(headers.get("location") ?? "")
          assert.deepStrictEqual([served.status, new Uint8Array(await served.arrayBuffer())], [200, file])
        }),
        { seed: SEED, numRuns: RUNS * 3, endOnFailure: true }
      )
    },
    20_000 + RUNS * 2_000
  )
})
