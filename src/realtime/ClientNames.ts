import type { IncomingMessage } from "node:http"

/** Longer names are cut. */
const MAX_LENGTH = 80
/** Names beyond this many are kept by their sockets alone. */
const MAX_SHARED = 1_000

/**
 * What clients call themselves when they connect: `X-AgentChat-Client` with its version, else `User-Agent`. For operators
 * only: a client may say anything. Many sockets share one text, so that a socket costs a pointer.
 */
export class ClientNames {
  private readonly shared = new Map<string, string>()

  of({ headers }: IncomingMessage): string | null {
    const [name, version] = [headers["x-agentchat-client"], headers["x-agentchat-client-version"]]
    const said = name === undefined ? headers["user-agent"] : version === undefined ? String(name) : `${String(name)}/${String(version)}`
    if (said === undefined || said === "") return null
    // A copy: a slice would keep the whole head of the request in memory.
    const text = Buffer.from(said.slice(0, MAX_LENGTH), "latin1").toString("latin1").replace(/[^ -~]/g, "?")
    const known = this.shared.get(text)
    if (known !== undefined) return known
    if (this.shared.size < MAX_SHARED) this.shared.set(text, text)
    return text
  }
}
