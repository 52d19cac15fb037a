import { assert } from "@effect/vitest"
import { Schema } from "effect"
import { request as httpRequest } from "node:http"
import { elapse } from "./Eventually.ts"

/** The body of a refusal, as a plain object. */
export interface Refusal {
  readonly code: string
  readonly message: string
  readonly details?: Readonly<Record<string, unknown>>
}

/**
 * Decodes strictly: a field that the schema does not name is an error, so that no field is added to an answer
 * unnoticed.
 */
export const matching = <S extends Schema.ConstraintDecoder<unknown>>(schema: S, value: unknown): S["Type"] =>
  Schema.decodeUnknownSync(schema, { onExcessProperty: "error", errors: "all" })(value)

/**
 * A complete HTTP answer. The constructor asserts what holds for all answers (wire.md C.0): `x-request-id`, and on 4xx
 * and 5xx a body of exactly `{code, message, details?}`.
 */
export class Answer {
  readonly request: string
  readonly status: number
  readonly headers: Headers
  readonly text: string
  /** Whether it was asked for more than once: an answer of 503 that came before may have been stored all the same. */
  repeated = false

  constructor(request: string, status: number, headers: Headers, text: string) {
    this.request = request
    this.status = status
    this.headers = headers
    this.text = text
    assert.match(headers.get("x-request-id") ?? "", /^[!-~]{1,128}$/, `${this}: x-request-id`)
    if (status < 400) return
    assert.match(headers.get("content-type") ?? "", /^application\/json/, `${this}: content-type`)
    const body = this.body
    if (typeof body !== "object" || body === null) assert.fail(`${this}: the body is no object`)
    const { code, message, details, ...rest } = body as Record<string, unknown>
    assert.match(String(code), /^[A-Z][A-Z_]+$/, `${this}: code`)
    assert.isString(message, `${this}: message`)
    assert.isNotEmpty(message, `${this}: message`)
    if ("details" in body) {
      assert.isObject(details, `${this}: details`)
    }
    assert.deepStrictEqual(rest, {}, `${this}: more than {code, message, details?}`)
  }

  get body(): unknown {
    try {
      return JSON.parse(this.text)
    } catch {
      return assert.fail(`${this}: the body is no JSON`)
    }
  }

  header(name: string): string | null {
    return this.headers.get(name)
  }

  /** Asserts the status and the exact shape of the body, and returns it. */
  ok<S extends Schema.ConstraintDecoder<unknown>>(status: number, schema: S): S["Type"] {
    assert.strictEqual(this.status, status, `${this}`)
    try {
      return matching(schema, this.body)
    } catch (error) {
      return assert.fail(`${this}\n${error instanceof Error ? error.message : String(error)}`)
    }
  }

  /** Asserts that this is a refusal with this status and code, and returns its body. */
  refused(status: number, code: string): Refusal {
    assert.deepStrictEqual([this.status, this.code], [status, code], `${this}`)
    return this.refusal
  }

  /** The code of a refusal. */
  get code(): string | undefined {
    return this.status < 400 ? undefined : this.refusal.code
  }

  private get refusal(): Refusal {
    // Checked by the constructor.
    return this.body as Refusal
  }

  toString(): string {
    return `${this.request} -> ${this.status} ${this.text.length > 600 ? `${this.text.slice(0, 600)}...` : this.text}`
  }
}

export interface RequestInput {
  /** Sent as JSON. */
  readonly json?: unknown
  /** A body that is sent unchanged, without a content-type. */
  readonly raw?: string | Uint8Array<ArrayBuffer>
  readonly headers?: Readonly<Record<string, string>>
}

/** Called for every exchange: the server's harness collects the secrets that must never be logged. */
export type Observer = (sent: unknown, answer: Answer) => void

/** Plain HTTP calls, without the published client. */
export class Http {
  readonly base: string
  readonly key: string | undefined
  private readonly observe: Observer
  private readonly isPatient: boolean

  /** A patient one repeats what is answered with 503 `UNAVAILABLE`. */
  constructor(base: string, key: string | undefined, observe: Observer, isPatient = false) {
    this.base = base
    this.key = key
    this.observe = observe
    this.isPatient = isPatient
  }

  request(method: string, path: string, input: RequestInput = {}): Promise<Answer> {
    const ask = () => this.once(method, path, input)
    return this.isPatient ? untilTaken(ask) : ask()
  }

  private async once(method: string, path: string, input: RequestInput): Promise<Answer> {
    const headers: Record<string, string> = {}
    if (this.key !== undefined) headers["authorization"] = `Bearer ${this.key}`
    const init: RequestInit = { method, redirect: "manual" }
    if ("json" in input) {
      headers["content-type"] = "application/json"
      init.body = JSON.stringify(input.json)
    } else if (input.raw !== undefined) {
      // fetch adds a content-type to a text, but not to bytes.
      init.body = typeof input.raw === "string" ? new TextEncoder().encode(input.raw) : input.raw
    }
    const response = await fetch(this.base + path, { ...init, headers: { ...headers, ...input.headers } })
    const answer = new Answer(`${method} ${path}`, response.status, response.headers, await response.text())
    this.observe(input.json, answer)
    return answer
  }

  get(path: string, headers: Readonly<Record<string, string>> = {}): Promise<Answer> {
    return this.request("GET", path, { headers })
  }

  /** Without `json` the request has neither body nor content-type. */
  post(path: string, json?: unknown, headers: Readonly<Record<string, string>> = {}): Promise<Answer> {
    return this.request("POST", path, json === undefined ? { headers } : { json, headers })
  }

  patch(path: string, json: unknown): Promise<Answer> {
    return this.request("PATCH", path, { json })
  }

  delete(path: string): Promise<Answer> {
    return this.request("DELETE", path)
  }
}

/** A quarter of a second apart. */
const MAX_TRIES = 720

/**
 * Repeats a request for three minutes while the answer is 503 `UNAVAILABLE`, as the published client does: a server
 * that stalled on a busy machine refuses changes for a moment afterwards. Only for requests that can be repeated.
 */
export const untilTaken = async (ask: () => Promise<Answer>): Promise<Answer> => {
  for (let tries = 1;; tries++) {
    const answer = await ask()
    if (answer.status !== 503 || answer.code !== "UNAVAILABLE" || tries === MAX_TRIES) {
      answer.repeated ||= tries > 1
      return answer
    }
    console.warn(`asked again: ${answer}`)
    await elapse("the time for which a server that stalled refuses requests", 250)
  }
}

/** One request on a connection of its own with exactly these headers, for requests that fetch would normalise. */
export const bare = (
  base: string,
  method: string,
  path: string,
  headers: Readonly<Record<string, string>> = {},
  body: string | Uint8Array = ""
): Promise<Answer> =>
  new Promise((resolve, reject) => {
    const { hostname, port } = new URL(base)
    const request = httpRequest({
      hostname,
      port,
      method,
      path,
      agent: false,
      headers: { "content-length": String(Buffer.byteLength(body)), ...headers }
    })
    // After an early answer the server may close the connection before it has read the whole body.
    let answered = false
    request.on("error", (error) => answered ? undefined : reject(error))
    request.on("response", (response) => {
      answered = true
      let text = ""
      response.setEncoding("utf8").on("data", (part: string) => text += part).on("error", reject).on("end", () => {
        const received = new Headers()
        for (const [name, values] of Object.entries(response.headersDistinct)) {
          for (const value of values ?? []) received.append(name, value)
        }
        try {
          resolve(new Answer(`${method} ${path}`, response.statusCode ?? 0, received, text))
        } catch (error) {
          reject(error instanceof Error ? error : new Error(String(error)))
        }
      })
    })
    request.end(body)
  })
