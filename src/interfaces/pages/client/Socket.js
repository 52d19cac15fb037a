import { socketUrl } from "./Api.js"

/** After this many milliseconds without a frame, the page sends a ping. */
const PING_MS = 20_000
/** If no frame follows the ping within this many milliseconds, the page closes the socket. */
const SILENT_MS = 10_000
/** How long the server may take to send its first frame after the page begins to connect, in milliseconds. */
const HELLO_MS = 8_000
const LONGEST_MS = 30_000

/**
 * The delay before an attempt to reconnect, in milliseconds. The delay is random, so that many pages do not reconnect
 * at once. Its upper bound doubles with each attempt, up to LONGEST_MS.
 * @param {number} attempt
 */
export const backoffMs = (attempt) => Math.round(250 + Math.random() * Math.min(LONGEST_MS, 500 * 2 ** attempt))

/**
 * @typedef {{ kind: "connecting" } | { kind: "live" } | { kind: "away", until: number, why: string } | { kind: "refused", why: string }} Link
 * @typedef {{ link: (link: Link) => void, hello: () => void, frame: (type: string, payload: any) => void }} Listener
 */

/** One agent's WebSocket. It reconnects until the server refuses the key. */
export class AgentSocket {
  /**
   * @param {string} key
   * @param {Listener} listener
   */
  constructor(key, listener) {
    this.key = key
    this.listener = listener
    this.attempt = 0
    this.ended = false
    /** @type {WebSocket | undefined} */
    this.socket = undefined
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.timer = undefined
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.watch = undefined
    this.now = () => {
      if (this.timer !== undefined) this.connect()
    }
    addEventListener("online", this.now)
    this.connect()
  }

  connect() {
    clearTimeout(this.timer)
    this.timer = undefined
    if (this.ended) return
    this.listener.link({ kind: "connecting" })
    const socket = new WebSocket(socketUrl())
    this.socket = socket
    let over = false
    /** @param {string} why */
    const lost = (why) => {
      if (over) return
      over = true
      clearTimeout(this.watch)
      if (this.socket === socket) this.socket = undefined
      if (this.ended) return
      const wait = backoffMs(this.attempt++)
      this.listener.link({ kind: "away", until: Date.now() + wait, why })
      this.timer = setTimeout(() => this.connect(), wait)
    }
    const silent = () => {
      socket.close()
      lost("The server stopped answering.")
    }
    const heard = () => {
      clearTimeout(this.watch)
      this.watch = setTimeout(() => {
        if (socket.readyState === WebSocket.OPEN) socket.send(`{"type":"ping"}`)
        this.watch = setTimeout(silent, SILENT_MS)
      }, PING_MS)
    }
    this.watch = setTimeout(silent, HELLO_MS)
    socket.addEventListener(
      "open",
      () =>
        socket.send(
          JSON.stringify({
            type: "hello",
            api_key: this.key,
            capabilities: ["ack"],
            client: "parley_page",
            client_version: "1"
          })
        )
    )
    socket.addEventListener("message", ({ data }) => {
      if (over) return
      heard()
      /** @type {{ type: string, payload?: any }} */
      const frame = JSON.parse(data)
      if (frame.type === "hello.ok") {
        this.attempt = 0
        this.listener.link({ kind: "live" })
        this.listener.hello()
      } else this.listener.frame(frame.type, frame.payload)
    })
    socket.addEventListener("close", ({ code, reason }) => {
      if (over) return
      if (code === 1008 || code === 4401 || code === 4403) {
        over = true
        this.end()
        this.listener.link({ kind: "refused", why: reason === "" ? "The server no longer accepts this key." : reason })
      } else lost(code === 1001 ? "The server is restarting." : reason === "" ? "The server does not answer." : reason)
    })
  }

  /** Sends a frame. If there is no connection, drops the frame and returns false. @param {unknown} frame */
  say(frame) {
    if (this.socket?.readyState !== WebSocket.OPEN) return false
    this.socket.send(JSON.stringify(frame))
    return true
  }

  end() {
    this.ended = true
    clearTimeout(this.timer)
    clearTimeout(this.watch)
    this.timer = undefined
    removeEventListener("online", this.now)
    this.socket?.close()
    this.socket = undefined
  }
}
