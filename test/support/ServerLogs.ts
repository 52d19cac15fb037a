/** Of what a server has written, as many lines are printed. */
const LINES = 200

/** What a server has written last, for whoever wants to know why a test failed. */
export class ServerLog {
  readonly name: string
  /** How the process ended; its log is then forgotten with the test that is under way. */
  ended: number | string | undefined
  #text = ""
  /** Of a server that writes to a file. */
  readonly #read: (() => string) | undefined

  constructor(name: string, read?: () => string) {
    this.name = name
    this.#read = read
  }

  add(text: string): void {
    this.#text += text
    if (this.#text.length > 1_000_000) this.#text = this.#text.slice(-500_000)
  }

  end(how: number | string): void {
    if (this.#read !== undefined) this.#text = this.#read()
    this.ended = how
  }

  /** The last lines of what came since this was last called; from a file, of all of it. */
  take(): string {
    if (this.#read !== undefined && this.ended === undefined) this.#text = this.#read()
    const lines = this.#text.trimEnd().split("\n").slice(-LINES)
    this.#text = ""
    return lines.join("\n")
  }
}

/** Of all servers of this process that live, or ended during the test that is under way. */
const logs = new Set<ServerLog>()

export const keepLog = (name: string, read?: () => string): ServerLog => {
  const log = new ServerLog(name, read)
  logs.add(log)
  return log
}

/** What these servers wrote last, each under its name; only once. */
export const takeLogs = (): string => {
  let said = ""
  for (const log of logs) {
    const end = log.ended === undefined ? "" : `, which ended with ${log.ended}`
    said += `--- log of ${log.name}${end}\n${log.take() || "(nothing new)"}\n`
  }
  return said
}

/** To be called after each test. */
export const forgetEnded = (): void => {
  for (const log of logs) if (log.ended !== undefined) logs.delete(log)
}
