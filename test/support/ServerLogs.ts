/** How many lines of a server's output are printed. */
const LINES = 200

/** Whether a server got too little processor time after SIGTERM to finish in time, and said so. Not in `test:pace`. */
export const endedLate = (code: number | string, stderr: string): boolean =>
  process.env["LONG"] === undefined && code === 1 && stderr.includes("not everything could be finished within")

/** The last output of a server, to be printed when a test fails. */
export class ServerLog {
  readonly name: string
  /** How the process ended. Its log is then dropped at the end of the test that is under way. */
  ended: number | string | undefined
  #text = ""
  /** Reads the log of a server that writes to a file. */
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

  /** The last lines since this was last called; for a server that writes to a file, the last lines of the file. */
  take(): string {
    if (this.#read !== undefined && this.ended === undefined) this.#text = this.#read()
    const lines = this.#text.trimEnd().split("\n").slice(-LINES)
    this.#text = ""
    return lines.join("\n")
  }
}

/** The logs of the servers of this process that run, or ended during the test that is under way. */
const logs = new Set<ServerLog>()

export const keepLog = (name: string, read?: () => string): ServerLog => {
  const log = new ServerLog(name, read)
  logs.add(log)
  return log
}

/** The last output of all these servers, each under its name. Output is returned only once. */
export const takeLogs = (): string => {
  let said = ""
  for (const log of logs) {
    const end = log.ended === undefined ? "" : `, which ended with ${log.ended}`
    said += `--- log of ${log.name}${end}\n${log.take() || "(nothing new)"}\n`
  }
  return said
}

/** Drops the logs of servers that have ended; to be called after each test. */
export const forgetEnded = (): void => {
  for (const log of logs) if (log.ended !== undefined) logs.delete(log)
}
