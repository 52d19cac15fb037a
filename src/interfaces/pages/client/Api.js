/** @import { BudgetLeft, Message } from "./Wire.ts" */

/** The server's URL. This module is at `assets/<version>/client/Api.js` below it. */
const base = new URL("../../../", import.meta.url)

/** @param {string} path begins without a slash */
export const urlOf = (path) => new URL(path, base).href

export const socketUrl = () => urlOf("v1/ws").replace(/^http/, "ws")

/** The time-out of a request, in milliseconds. */
const REQUEST_TIMEOUT_MS = 20_000

/** A refusal with the server's code and message. `code` is `UNREACHABLE` if there was no response. */
export class Refused extends Error {
  /**
   * @param {string} code
   * @param {string} message
   * @param {number} status
   * @param {number | undefined} retryAfter seconds
   * @param {any} [details] the fields that the server documents for the code
   */
  constructor(code, message, status, retryAfter, details) {
    super(message)
    this.details = details
    this.code = code
    this.status = status
    this.retryAfter = retryAfter
  }

  /** Whether the same request may succeed later. */
  get passing() {
    return this.status === 0 || this.status === 408 || this.status === 425 || this.status >= 500 ||
      (this.status === 429 && this.code === "RATE_LIMITED")
  }
}

/** @param {unknown} error */
export const textOf = (error) => error instanceof Error ? error.message : String(error)

/**
 * What the response to a send says about the agent's budget of messages: null if more than a fifth is left.
 * @param {Headers} headers
 * @returns {BudgetLeft | null}
 */
const budgetOf = (headers) => {
  const left = headers.get("x-budget-left")
  return left === null ? null : {
    left: Number(left),
    limit: Number(headers.get("x-budget-limit")),
    scope: headers.get("x-budget-scope") === "agent" ? "agent" : "conversation"
  }
}

/**
 * @param {Response} response
 * @returns {Promise<Refused>}
 */
const refusalOf = async (response) => {
  const after = Number(response.headers.get("retry-after") ?? Number.NaN)
  const retryAfter = Number.isFinite(after) ? after : undefined
  try {
    const { code, details, message } = await response.json()
    if (typeof code === "string" && typeof message === "string")
      return new Refused(code, message, response.status, retryAfter, details)
  } catch {
    // The response is not from this server, but from something in between, such as a proxy.
  }
  return new Refused("HTTP", `The server answered ${response.status}.`, response.status, retryAfter)
}

/**
 * @param {string} url
 * @param {RequestInit} init
 */
const send = async (url, init) => {
  let response
  try {
    response = await fetch(url, {
      credentials: "omit",
      ...init,
      cache: "no-store",
      signal: AbortSignal.timeout(REQUEST_TIMEOUT_MS)
    })
  } catch {
    throw new Refused("UNREACHABLE", "The server does not answer.", 0, undefined)
  }
  if (!response.ok) throw await refusalOf(response)
  return response
}

/**
 * Sends bytes with PUT. Unlike `fetch`, XMLHttpRequest reports how many bytes have been sent. The request times out when
 * no bytes are sent and no response arrives for the time-out of a request.
 * @param {string} url
 * @param {Blob} bytes
 * @param {{ onSent?: (bytes: number) => void, signal?: AbortSignal }} options
 * @returns {Promise<void>}
 */
const put = (url, bytes, { onSent, signal }) =>
  new Promise((resolve, reject) => {
    const request = new XMLHttpRequest()
    const stop = () => request.abort()
    let timer = setTimeout(stop, REQUEST_TIMEOUT_MS)
    request.upload.addEventListener("progress", ({ loaded }) => {
      clearTimeout(timer)
      timer = setTimeout(stop, REQUEST_TIMEOUT_MS)
      onSent?.(loaded)
    })
    request.addEventListener("loadend", () => {
      clearTimeout(timer)
      signal?.removeEventListener("abort", stop)
      const { responseText: text, status } = request
      if (status >= 200 && status < 300) return resolve()
      if (status === 0) return reject(new Refused("UNREACHABLE", "The server does not answer.", 0, undefined))
      refusalOf(new Response(text, { status })).then(reject, reject)
    })
    signal?.addEventListener("abort", stop)
    request.open("PUT", url)
    request.send(bytes)
  })

/**
 * Replaces the error message of a request without a response, so that the new message names the request. Browsers give
 * a page no details about failed requests to other origins.
 * @param {string} words
 * @returns {(error: unknown) => never}
 */
const inWords = (words) => (error) => {
  throw error instanceof Refused && error.code === "UNREACHABLE" ? new Refused(error.code, words, 0, undefined) : error
}

/** 128 random bits as hexadecimal digits. Unlike `crypto.randomUUID`, it also works outside of secure contexts. */
export const freshId = () =>
  Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("")

/** @param {number} ms */
export const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

/**
 * Calls the public API with one key, or without a key. With `cookies`, requests carry the cookies of this server, which
 * the API of the sign-in page needs. A request that changes something carries an Idempotency-Key, so that it can be
 * repeated if its response is lost. A request is tried up to three times. A request that changes something is tried
 * only once if it is sent without an agent's key.
 */
export class Api {
  /** @param {string | undefined} key @param {{ cookies?: boolean }} [options] */
  constructor(key, { cookies = false } = {}) {
    this.key = key
    /** @type {RequestCredentials} */
    this.credentials = cookies ? "same-origin" : "omit"
  }

  /**
   * @param {string} method
   * @param {string} path
   * @param {unknown} [body]
   * @returns {Promise<any>}
   */
  async call(method, path, body) {
    /** @type {Record<string, string>} */
    const headers = {}
    if (this.key !== undefined) headers["authorization"] = `Bearer ${this.key}`
    const repeatable = method === "GET" || this.key !== undefined
    if (method !== "GET" && this.key !== undefined) headers["idempotency-key"] = freshId()
    if (body !== undefined) headers["content-type"] = "application/json"
    for (let attempt = 1;; attempt++) {
      try {
        const response = await send(urlOf(path), {
          method,
          headers,
          credentials: this.credentials,
          body: body === undefined ? null : JSON.stringify(body)
        })
        return await response.json()
      } catch (error) {
        if (
          !(error instanceof Refused) || !repeatable || !error.passing || attempt === 3 || (error.retryAfter ?? 0) > 5
        ) throw error
        await pause(1000 * (error.retryAfter ?? 0) + 300 * 2 ** attempt * Math.random())
      }
    }
  }

  /**
   * @param {string} path
   * @returns {Promise<any>}
   */
  get(path) {
    return this.call("GET", path)
  }

  /**
   * @param {string} path
   * @param {unknown} [body]
   * @returns {Promise<any>}
   */
  post(path, body) {
    return this.call("POST", path, body)
  }

  /**
   * Makes a request that continues when the page is closed. Does not wait for the response.
   * @param {string} method
   * @param {string} path
   */
  parting(method, path) {
    fetch(urlOf(path), {
      method,
      keepalive: true,
      credentials: "omit",
      headers: { "authorization": `Bearer ${this.key}`, "idempotency-key": freshId() }
    })
      .catch(() => undefined)
  }

  /**
   * Uploads bytes with PUT, in one attempt.
   * @param {string} path
   * @param {Blob} bytes
   * @returns {Promise<any>}
   */
  async putBytes(path, bytes) {
    const response = await send(urlOf(path), {
      method: "PUT",
      headers: { authorization: `Bearer ${this.key}` },
      body: bytes
    })
    return response.json()
  }

  /**
   * Sends a message in one attempt, without retries. The outbox retries sends itself. If the agent has used the
   * client_msg_id in another conversation before, nothing is sent, and the returned message is the one from that
   * conversation (wire.md C.6).
   * @param {unknown} body
   * @returns {Promise<{ message: Message, isElsewhere: boolean, budget: BudgetLeft | null | undefined }>}
   */
  async sendOnce(body) {
    const response = await send(urlOf("v1/messages"), {
      method: "POST",
      headers: { "authorization": `Bearer ${this.key}`, "content-type": "application/json" },
      body: JSON.stringify(body)
    })
    return {
      message: await response.json(),
      isElsewhere: response.headers.has("x-client-msg-id-conflict"),
      // A replay says nothing about the budget.
      budget: response.status === 201 ? budgetOf(response.headers) : undefined
    }
  }

  /**
   * Downloads a file, following the redirect to its bytes.
   * @param {string} id
   */
  async file(id) {
    const response = await send(urlOf(`v1/attachments/${encodeURIComponent(id)}`), {
      headers: { authorization: `Bearer ${this.key}` }
    })
      .catch(
        inWords(
          "The file cannot be fetched: the server, or the store that it keeps files in, does not answer this page."
        )
      )
    const disposition = response.headers.get("content-disposition") ?? ""
    const exact = /filename\*=UTF-8''([^;]+)/.exec(disposition)?.[1]
    const plain = /filename="([^"]*)"/.exec(disposition)?.[1]
    return {
      name: exact === undefined ? plain : decodeURIComponent(exact),
      blob: await response.blob()
    }
  }

  /**
   * Uploads the bytes of a file to a signed URL.
   * @param {string} url
   * @param {Blob} bytes
   * @param {{ onSent?: (bytes: number) => void, signal?: AbortSignal }} options
   */
  async upload(url, bytes, options) {
    // If the server stores files itself, upload to the origin of this page, which may differ from the origin in the
    // URL.
    const { pathname } = new URL(url)
    const own = pathname.includes("/v1/files/")
    await put(own ? urlOf(pathname.slice(pathname.indexOf("v1/files/"))) : url, bytes, options)
      .catch(inWords("The file cannot be sent: the store that the server keeps files in does not answer this page."))
  }

  /**
   * Reads all rows of a list, page by page, up to a bound.
   * @param {string} path
   * @param {string} name
   * @param {number} [most]
   * @returns {Promise<Array<any>>}
   */
  async all(path, name, most = 1000) {
    /** @type {Array<any>} */
    const rows = []
    /** @type {string | null} */
    let cursor = null
    do {
      const page = await this.get(`${path}?limit=200${cursor === null ? "" : `&cursor=${encodeURIComponent(cursor)}`}`)
      rows.push(...page[name])
      cursor = page.next_cursor
    } while (cursor !== null && rows.length < most)
    return rows
  }
}
