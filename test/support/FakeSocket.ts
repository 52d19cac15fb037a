import type { WebSocket } from "ws"

/** The members of a `ws` socket that a Session uses. */
export class FakeSocket {
  readyState = 1
  bufferedAmount = 0
  readonly sent: Array<{ readonly frame: string; readonly at: number }> = []
  closedWith: number | undefined
  /** The underlying stream, which a Session corks for a turn of the event loop. */
  readonly _socket = { cork: (): void => {}, uncork: (): void => {} }
  private readonly now: () => number

  constructor(now: () => number) {
    this.now = now
  }

  send(frame: string): void {
    this.sent.push({ frame, at: this.now() })
  }

  close(code: number): void {
    this.closedWith ??= code
    this.readyState = 2
  }

  terminate(): void {
    this.readyState = 3
  }

  /** A Session takes a whole WebSocket and uses these members of it. */
  get asWebSocket(): WebSocket {
    return this as unknown as WebSocket
  }
}
