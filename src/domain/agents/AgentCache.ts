import type { AgentId } from "./Agent.ts"
import type { StoredAgent } from "./AgentsRepo.ts"

const MAX_AGE_MILLIS = 1_000
const MAX_AGENTS = 50_000

/** The hash of a key as text. Hashes are compared in this form. */
export const hashText = (hash: Buffer): string => hash.toString("latin1")

/** Accounts by id, by handle and by the hash of their key. */
export class AgentIndex {
  readonly ids = new Map<AgentId, StoredAgent>()
  readonly handles = new Map<string, StoredAgent>()
  readonly keys = new Map<string, StoredAgent>()

  constructor(agents: ReadonlyArray<StoredAgent>) {
    for (const agent of agents) {
      this.ids.set(agent.id, agent)
      this.handles.set(agent.handle, agent)
      if (agent.keyHash !== null) this.keys.set(hashText(agent.keyHash), agent)
    }
  }
}

interface Entry {
  readonly agent: StoredAgent
  readonly key: string | undefined
  readonly loadedAt: number
}

/** Caches accounts by id, handle and key. A full cache drops the account whose last read is the oldest. */
export class AgentCache {
  private readonly ids = new Map<AgentId, Entry>()
  private readonly handles = new Map<string, Entry>()
  private readonly keys = new Map<string, Entry>()

  byId(id: AgentId, now: number): StoredAgent | undefined {
    return fresh(this.ids.get(id), now)
  }

  byHandle(handle: string, now: number): StoredAgent | undefined {
    return fresh(this.handles.get(handle), now)
  }

  byKey(key: string, now: number): StoredAgent | undefined {
    return fresh(this.keys.get(key), now)
  }

  put(agent: StoredAgent, loadedAt: number): void {
    const known = this.ids.get(agent.id)
    if (known !== undefined && known.loadedAt > loadedAt) return
    this.forget(agent.id)
    if (this.ids.size >= MAX_AGENTS) {
      const oldest = this.ids.keys().next()
      if (oldest.done !== true) this.forget(oldest.value)
    }
    const entry: Entry = { agent, key: agent.keyHash === null ? undefined : hashText(agent.keyHash), loadedAt }
    this.ids.set(agent.id, entry)
    this.handles.set(agent.handle, entry)
    if (entry.key !== undefined) this.keys.set(entry.key, entry)
  }

  forget(id: AgentId): void {
    const entry = this.ids.get(id)
    if (entry === undefined) return
    this.ids.delete(id)
    this.handles.delete(entry.agent.handle)
    if (entry.key !== undefined) this.keys.delete(entry.key)
  }
}

const fresh = (entry: Entry | undefined, now: number): StoredAgent | undefined =>
  entry === undefined || now - entry.loadedAt >= MAX_AGE_MILLIS ? undefined : entry.agent
