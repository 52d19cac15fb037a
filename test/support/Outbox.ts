import { readdir, readFile, stat } from "node:fs/promises"
import { join } from "node:path"
import { eventually } from "./Eventually.ts"

export interface Mail {
  readonly file: string
  readonly to: string
  /** Header names lower-cased. */
  readonly headers: ReadonlyMap<string, string>
  readonly text: string
  /** The one-time code, if six digits stand alone on a line. */
  readonly code: string | undefined
}

/** The folder into which a server without SMTP writes its mail. Each mail is returned once, oldest first. */
export class Outbox {
  readonly folder: string
  private readonly seen = new Set<string>()
  private readonly waiting = new Map<string, Array<Mail>>()

  constructor(folder: string) {
    this.folder = folder
  }

  /** Waits for the next mail to this address that was not returned yet. */
  async next(address: string): Promise<Mail> {
    return eventually(`mail to ${address}`, async () => (await this.queue(address)).shift())
  }

  /** The code of the next mail to this address. */
  async code(address: string): Promise<string> {
    const mail = await this.next(address)
    if (mail.code === undefined) throw new Error(`no code alone on a line in ${mail.file}:\n${mail.text}`)
    return mail.code
  }

  /** How many mails to this address were not returned yet. */
  async count(address: string): Promise<number> {
    return (await this.queue(address)).length
  }

  private async queue(address: string): Promise<Array<Mail>> {
    await this.scan()
    return this.waiting.get(address) ?? []
  }

  private async scan(): Promise<void> {
    const names = await readdir(this.folder).catch(() => [])
    const fresh = names.filter((name) => name.endsWith(".eml") && !this.seen.has(name))
    for (const name of fresh) this.seen.add(name)
    const dated = await Promise.all(fresh.map(async (name) => {
      const file = join(this.folder, name)
      return { at: (await stat(file)).mtimeMs, mail: parse(file, await readFile(file, "utf8")) }
    }))
    dated.sort((one, other) => one.at - other.at || (one.mail.file < other.mail.file ? -1 : 1))
    for (const { mail } of dated) {
      const queue = this.waiting.get(mail.to)
      if (queue === undefined) this.waiting.set(mail.to, [mail])
      else queue.push(mail)
    }
  }
}

const parse = (file: string, raw: string): Mail => {
  const mail = raw.replaceAll("\r\n", "\n")
  const end = mail.indexOf("\n\n")
  const head = mail.slice(0, end).replaceAll(/\n[ \t]+/g, " ")
  const text = mail.slice(end + 2)
  const headers = new Map(
    head.split("\n").map((line) => {
      const colon = line.indexOf(":")
      return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()]
    })
  )
  return {
    file,
    to: headers.get("to")?.match(/[^\s<>,"]+@[^\s<>,"]+/)?.[0] ?? "",
    headers,
    text,
    code: text.match(/^(\d{6})$/m)?.[1]
  }
}
