import { AgentChatClient, RealtimeClient } from "agentchatme"
import { monitorEventLoopDelay } from "node:perf_hooks"
import { WebSocket } from "ws"

/**
 * The clients of `Reconnects.ts`, in a process of their own: the published client as its
 * users have it, with its socket and its own drain over REST beside what is pushed.
 */

export interface ClientPlan {
  readonly handle: string
  readonly key: string
  readonly url: string
  /** The `client_msg_id` of each message that waits for it. */
  readonly waiting: ReadonlyArray<string>
}

export type Ask =
  | { readonly ask: "prepare"; readonly clients: ReadonlyArray<ClientPlan>; readonly socket: "native" | "ws" }
  | { readonly ask: "connect"; readonly timeoutMs: number }
  | { readonly ask: "disconnect" }

export interface Drained {
  /**
   * From the first connect() on: until each client's hello was answered at last, and until it had everything; sorted.
   */
  readonly connectedMs: ReadonlyArray<number>
  readonly drainedMs: ReadonlyArray<number>
  /** Messages that never came, that came twice to a handler, and that came after a later one of their conversation. */
  readonly lost: number
  readonly twice: number
  readonly outOfOrder: number
  /** Messages that nobody sent to that client. */
  readonly strange: number
  /** Sockets that ended, and why. */
  readonly ended: Readonly<Record<string, number>>
  readonly gaps: number
}

/** What is known only when everything is over. */
export interface Disconnected {
  /** What the clients complained of. */
  readonly errors: Readonly<Record<string, number>>
  /** How late this process's event loop was at most, in ms: clients of their own would be on time. */
  readonly lateMs: number
}

export type Told =
  | { readonly told: "prepared" }
  | ({ readonly told: "drained" } & Drained)
  | ({ readonly told: "disconnected" } & Disconnected)

const tell = (what: Told) => process.send?.(what)

const note = (into: Record<string, number>, what: string) => {
  into[what] = (into[what] ?? 0) + 1
}

/** The message of an error, with the code of what caused it: the message of `fetch` alone does not say it. */
const textOf = ({ cause, message }: Error): string => {
  const { code, message: why } = (cause ?? {}) as { readonly code?: string; readonly message?: string }
  return cause === undefined ? message : `${message}: ${code ?? why}`
}

/** `fetch` as it is, but the published client keeps only the message of what it throws: so the message says the cause. */
const explainedFetch: typeof fetch = async (url, init) => {
  try {
    return await fetch(url, init)
  } catch (error) {
    throw error instanceof TypeError ? new TypeError(`${init?.method ?? "GET"}: ${textOf(error)}`) : error
  }
}

class Storm {
  private readonly clients: Array<RealtimeClient> = []
  private readonly missing: Array<Set<string>> = []
  private readonly counts = { twice: 0, outOfOrder: 0, strange: 0, gaps: 0 }
  private readonly ended: Record<string, number> = {}
  private readonly errors: Record<string, number> = {}
  private readonly connectedAt: Array<number> = []
  private readonly drainedAt: Array<number> = []
  private readonly delay = monitorEventLoopDelay()
  private left = 0
  private done: () => void = () => {}

  constructor(plans: ReadonlyArray<ClientPlan>, socket: "native" | "ws") {
    for (const plan of plans) this.add(plan, socket)
    this.left = plans.length
  }

  private add({ handle, key, url, waiting }: ClientPlan, socket: "native" | "ws"): void {
    const at = this.clients.length
    const missing = new Set(waiting)
    const seen = new Set<string>()
    const latest = new Map<string, number>()
    const client = new RealtimeClient({
      apiKey: key,
      baseUrl: url.replace("http", "ws"),
      client: new AgentChatClient({ apiKey: key, baseUrl: url, fetch: explainedFetch }),
      onSequenceGap: () => this.counts.gaps++,
      // The published client takes any class of sockets; its types name the browser's.
      ...(socket === "ws" ? { webSocket: WebSocket as unknown as typeof globalThis.WebSocket } : {})
    })
    client.onConnect(() => this.connectedAt[at] = performance.now())
    client.onError((error) => note(this.errors, error.message))
    client.onDisconnect(({ code, reason }) => note(this.ended, `${code} ${reason}`.trim()))
    client.on("message.new", ({ payload }) => {
      // The contract tests are about shapes; here they are taken as given.
      const row = payload as {
        readonly client_msg_id: string
        readonly conversation_id: string
        readonly seq: number
        readonly sender: string
      }
      if (row.sender === handle) return
      const id = row.client_msg_id
      if (seen.has(id)) this.counts.twice++
      seen.add(id)
      if (row.seq < (latest.get(row.conversation_id) ?? 0)) this.counts.outOfOrder++
      latest.set(row.conversation_id, row.seq)
      if (!missing.delete(id)) return void this.counts.strange++
      if (missing.size > 0) return
      this.drainedAt[at] = performance.now()
      this.left--
      if (this.left === 0) this.done()
    })
    this.clients.push(client)
    this.missing.push(missing)
  }

  async connect(timeoutMs: number): Promise<Drained> {
    this.delay.enable()
    const began = performance.now()
    const all = new Promise<void>((resolve) => {
      this.done = resolve
      setTimeout(resolve, timeoutMs)
    })
    for (const client of this.clients) void client.connect().catch(() => undefined)
    await all
    const since = (times: ReadonlyArray<number>) =>
      Object.values(times).map((at) => at - began).sort((one, other) => one - other)
    return {
      connectedMs: since(this.connectedAt),
      drainedMs: since(this.drainedAt),
      lost: this.missing.reduce((sum, some) => sum + some.size, 0),
      ...this.counts,
      ended: { ...this.ended }
    }
  }

  disconnect(): Disconnected {
    this.delay.disable()
    for (const client of this.clients) client.disconnect()
    return { errors: this.errors, lateMs: this.delay.max / 1e6 }
  }
}

let storm: Storm | undefined
process.on("message", (what: Ask) => {
  switch (what.ask) {
    case "prepare":
      storm = new Storm(what.clients, what.socket)
      return tell({ told: "prepared" })
    case "connect":
      return void storm?.connect(what.timeoutMs).then((drained) => tell({ told: "drained", ...drained }))
    case "disconnect":
      return storm === undefined ? undefined : void tell({ told: "disconnected", ...storm.disconnect() })
  }
})
process.on("disconnect", () => process.exit(1))
