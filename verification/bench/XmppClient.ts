import { connect, type Socket } from "node:net"

/** Called for each stanza that counts: a message with its id, or the number of stanzas that the server has handled. */
export interface XmppEvents {
  readonly onMessage: (id: string) => void
  readonly onHandled: (count: number) => void
  readonly onFailure: (why: string) => void
}

/** How long the server may take for each step of signing in, in milliseconds. */
const STEP_TIMEOUT_MS = 10_000
const MANAGEMENT = "urn:xmpp:sm:3"

/**
 * An XMPP client (RFC 6120) with stream management (XEP-0198): it confirms the stanzas that it got when the server
 * asks, and asks the server to confirm each message that it sends. It reads only what a benchmark needs, by searching
 * the text: the server writes its own stanzas always in the same form.
 */
export class XmppClient {
  private readonly socket: Socket
  private readonly events: XmppEvents
  private text = ""
  private step: ((text: string) => boolean) | undefined
  /** Stanzas that this client got since stream management was enabled. */
  private received = 0

  private constructor(socket: Socket, events: XmppEvents) {
    this.socket = socket
    this.events = events
    socket.setNoDelay(true)
    socket.setEncoding("utf8")
    socket.on("data", (chunk: string) => this.read(chunk))
    socket.on("error", (error) => events.onFailure(error.message))
    socket.on("close", () => events.onFailure("the server closed the stream"))
  }

  static async connect(port: number, host: string, user: string, password: string, events: XmppEvents) {
    const socket = connect(port, "127.0.0.1")
    const client = new XmppClient(socket, events)
    const open = `<stream:stream xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams' to='${host}' ` +
      "version='1.0'>"
    const token = Buffer.from(`\0${user}\0${password}`).toString("base64")
    await client.ask(open, "</stream:features>")
    await client.ask(`<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='PLAIN'>${token}</auth>`, "<success")
    await client.ask(open, "</stream:features>")
    await client.ask(
      "<iq type='set' id='bind'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'><resource>bench</resource></bind></iq>",
      "</iq>"
    )
    await client.ask("<presence/>", "<presence")
    await client.ask(`<enable xmlns='${MANAGEMENT}'/>`, "<enabled")
    return client
  }

  private ask(text: string, answer: string): Promise<void> {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(
        () => reject(new Error(`the XMPP server did not send ${answer}: ${this.text}`)),
        STEP_TIMEOUT_MS
      )
      this.step = (got) => {
        if (!got.includes(answer)) return false
        clearTimeout(timer)
        this.step = undefined
        resolve()
        return true
      }
      this.socket.write(text)
    })
  }

  /** Sends a chat message and asks the server to confirm it, in one write. */
  send(to: string, id: string, body: string): void {
    this.socket.write(
      `<message to='${to}' type='chat' id='${id}'><body>${body}</body></message><r xmlns='${MANAGEMENT}'/>`
    )
  }

  close(): void {
    this.socket.removeAllListeners("close")
    this.socket.end("</stream:stream>")
  }

  private read(chunk: string): void {
    this.text += chunk
    if (this.step !== undefined) {
      if (this.step(this.text)) this.text = ""
      return
    }
    let at = 0
    for (;;) {
      const begin = this.text.indexOf("<", at)
      if (begin < 0) break
      const end = this.endOf(begin)
      if (end < 0) break
      this.take(this.text.slice(begin, end))
      at = end
    }
    this.text = this.text.slice(at)
  }

  /** The index after the stanza that begins at `begin`; -1 if it is not complete yet. */
  private endOf(begin: number): number {
    const open = this.text.indexOf(">", begin)
    if (open < 0) return -1
    if (this.text[open - 1] === "/") return open + 1
    const name = /^<([a-z:]+)/.exec(this.text.slice(begin, open + 1))?.[1]
    const close = this.text.indexOf(`</${name}>`, open)
    return close < 0 ? -1 : close + `</${name}>`.length
  }

  private take(stanza: string): void {
    if (stanza.startsWith("<message")) {
      this.received++
      const id = /^<message[^>]* id='([^']*)'/.exec(stanza)?.[1]
      if (id !== undefined) this.events.onMessage(id)
    } else if (stanza.startsWith("<r ")) {
      this.socket.write(`<a xmlns='${MANAGEMENT}' h='${this.received}'/>`)
    } else if (stanza.startsWith("<a ")) {
      this.events.onHandled(Number(/ h='(\d+)'/.exec(stanza)?.[1]))
    } else if (/^<(?:iq|presence)/.test(stanza)) {
      this.received++
    } else this.events.onFailure(stanza)
  }
}
