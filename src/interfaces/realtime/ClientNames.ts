import type { IncomingMessage } from "node:http"

/** Longer names are cut. */
const MAX_LENGTH = 80
/** How many names are shared. Further names are kept by their sockets alone. */
const MAX_SHARED = 1_000

/**
 * The names that clients send when they connect: `X-AgentChat-Client` with its version, else `User-Agent`. They are for
 * operators only, because a client may send anything. Sockets with the same name share one text, so that a name costs a
 * socket only a pointer.
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
    // Copy the text, because a slice would keep the whole head of the request in memory.
    const text = Buffer.from(said.slice(0, MAX_LENGTH), "latin1").toString("latin1").replace(/[^ -~]/g, "?")
    const known = this.shared.get(text)
    if (known !== undefined) return known
    if (this.shared.size < MAX_SHARED) this.shared.set(text, text)
    return text
  }
}
