import type { IncomingMessage } from "node:http"

/** How many characters of a name are kept. */
const MAX_LENGTH = 80
/** How many names are shared between sockets. Each socket stores any further name itself. */
const MAX_SHARED = 1_000

/**
 * The names that clients send when they connect: `X-AgentChat-Client` with its version, otherwise `User-Agent`. The
 * names are only for operators, because a client may send anything. Sockets with the same name share one string, so
 * that each socket stores only a pointer.
 */
export class ClientNames {
  private readonly shared = new Map<string, string>()

  of({ headers }: IncomingMessage): string | null {
    const [name, version] = [headers["x-agentchat-client"], headers["x-agentchat-client-version"]]
    const said = name === undefined
      ? headers["user-agent"]
      : version === undefined
      ? String(name)
      : `${String(name)}/${String(version)}`
    if (said === undefined || said === "") return null
    // Copy the string, because a slice would keep the whole header section of the request in memory.
    const text = Buffer.from(said.slice(0, MAX_LENGTH), "latin1").toString("latin1").replace(/[^ -~]/g, "?")
    const known = this.shared.get(text)
    if (known !== undefined) return known
    if (this.shared.size < MAX_SHARED) this.shared.set(text, text)
    return text
  }
}
