import { once } from "node:events"
import { SMTPServer } from "smtp-server"
import { freePort } from "../../runners/local/FreePort.ts"

/** A mail server that can be unavailable for a while. */
export class Mailbox {
  readonly host: string
  readonly port: number
  /** The addresses for which mail has arrived. */
  readonly received: Array<string> = []
  private server: SMTPServer | undefined

  private constructor(host: string, port: number) {
    this.host = host
    this.port = port
  }

  static async start(host: string): Promise<Mailbox> {
    const mailbox = new Mailbox(host, await freePort())
    await mailbox.launch()
    return mailbox
  }

  get url(): string {
    return `smtp://${this.host}:${this.port}`
  }

  async launch(): Promise<void> {
    const server = new SMTPServer({
      authOptional: true,
      disabledCommands: ["STARTTLS", "AUTH"],
      closeTimeout: 100,
      onData: (stream, session, done) => {
        stream.on("end", () => {
          for (const { address } of session.envelope.rcptTo) this.received.push(address)
          done()
        })
        stream.resume()
      }
    })
    server.on("error", () => {})
    this.server = server
    await once(server.listen(this.port, this.host), "listening")
  }

  /** Refuses connections from now on. */
  async stop(): Promise<void> {
    const server = this.server
    this.server = undefined
    if (server !== undefined) await new Promise<void>((resolve) => server.close(() => resolve()))
  }
}
