import { type PostTarget, type Standing, standings } from "./TargetHealth.ts"

export interface PlaceLimits {
  /** How many posts may be under way. */
  readonly inAll: number
  readonly perAgent: number
  readonly perHost: number
  /** How many posts may wait for a place. */
  readonly waiting: { readonly inAll: number; readonly perAgent: number }
}

/** The posts that may begin now, and the waiting posts that are dropped. */
export interface Moves<Post> {
  readonly granted: ReadonlyArray<Post>
  readonly refused: ReadonlyArray<Post>
}

/**
 * The share of the places that posts to targets with this standing or a worse one may take. A quarter of all places is
 * reserved for targets that answered recently. Silent targets may take at most a quarter. Of its own places, an agent
 * may use one in eight for targets that may be dead. So 40 agents with dead targets leave places for the new target of
 * another agent.
 */
const IN_ALL = { Silent: 1 / 4, Unknown: 3 / 4, Late: 3 / 4, Answers: 1 }
const OF_AGENT = { Silent: 1 / 8, Unknown: 1 / 8, Late: 1 / 2, Answers: 1 }
const OF_HOST = { Silent: 1 / 2, Unknown: 1 / 2, Late: 1 / 2, Answers: 1 }

const BEST = standings.indexOf("Answers")

/** The places of one agent, of one host, or of all posts. Every share has at least one place. */
class Places {
  private readonly most: ReadonlyArray<number>
  /** For each index of a standing, how many posts under way began with that standing or a worse one. */
  private readonly used = standings.map(() => 0)

  constructor(places: number, shares: Readonly<Record<Standing, number>>) {
    this.most = standings.map((standing) => Math.max(1, Math.floor(places * shares[standing])))
  }

  fits(from: number): boolean {
    for (let i = from; i < this.used.length; i++) if (this.used[i]! >= this.most[i]!) return false
    return true
  }

  add(from: number, posts: 1 | -1): void {
    for (let i = from; i < this.used.length; i++) this.used[i]! += posts
  }

  get isEmpty(): boolean {
    return this.used.at(-1) === 0
  }
}

/**
 * Decides which posts are under way and which wait. A post waits only while one of the three limits (all posts, its
 * agent, its host) has no place left for its standing. Free places go to the agents in a round robin. An agent's posts
 * with a better standing begin first, and posts of equal standing in the order of arrival. When too many posts wait,
 * the newest waiting post of the agent with the most waiting posts is dropped. Posts are compared by object identity.
 */
export class PostScheduler<Post extends PostTarget> {
  private readonly limits: PlaceLimits
  private readonly standingOf: (target: PostTarget) => Standing
  private readonly all: Places
  private readonly agents = new Map<string, Places>()
  private readonly hosts = new Map<string, Places>()
  /** The waiting posts of each agent. The agent whose turn is next comes first. An empty queue is removed. */
  private readonly queues = new Map<string, Array<Post>>()
  /** For each post under way, the index of the standing with which it began. */
  private readonly held = new Map<Post, number>()
  private queued = 0

  constructor(limits: PlaceLimits, standingOf: (target: PostTarget) => Standing) {
    this.limits = limits
    this.standingOf = standingOf
    this.all = new Places(limits.inAll, IN_ALL)
  }

  get underWay(): number {
    return this.held.size
  }

  get waiting(): number {
    return this.queued
  }

  /** Adds a post that wants a place. */
  enter(post: Post): Moves<Post> {
    const queue = this.queues.get(post.agentId)
    const standing = this.standingFor(post)
    if (queue === undefined && standing !== undefined) {
      this.hold(post, standing)
      return { granted: [post], refused: [] }
    }
    if (queue === undefined) this.queues.set(post.agentId, [post])
    else queue.push(post)
    this.queued++
    // Posts of other agents that wait could not begin before this one arrived, and still cannot.
    const granted: Array<Post> = []
    if (standing !== undefined) this.grantOne(post.agentId, granted)
    const refused = this.tooMany(post.agentId)
    if (refused !== undefined) this.remove(refused)
    return { granted, refused: refused === undefined ? [] : [refused] }
  }

  /** Removes a post that has ended or whose wait was interrupted. Does nothing for a post that was refused. */
  leave(post: Post): Moves<Post> {
    const standing = this.held.get(post)
    if (standing === undefined) {
      this.remove(post)
      return { granted: [], refused: [] }
    }
    const { agentId, host } = post
    // If there was still such a place on the server and for the host, no post of another agent waited for it.
    const helpsOthers = !this.all.fits(standing) || this.hosts.get(host)?.fits(standing) === false
    this.held.delete(post)
    this.all.add(standing, -1)
    release(this.agents, agentId, standing)
    release(this.hosts, host, standing)
    const granted: Array<Post> = []
    if (helpsOthers) {
      // An agent that gets a place moves to the end of the map, so this loop visits it again.
      for (const agentId of this.queues.keys()) {
        if (!this.all.fits(BEST)) break
        this.grantOne(agentId, granted)
      }
    } else while (this.grantOne(agentId, granted));
    return { granted, refused: [] }
  }

  /** Gives a place to one waiting post of the agent if a place is free for any of them. Returns whether it did. */
  private grantOne(agentId: string, granted: Array<Post>): boolean {
    if (this.agents.get(agentId)?.fits(BEST) === false) return false
    let best: Post | undefined
    let standing = -1
    for (const post of this.queues.get(agentId) ?? []) {
      const found = this.standingFor(post) ?? -1
      if (found > standing) {
        best = post
        standing = found
      }
      if (standing === BEST) break
    }
    if (best === undefined) return false
    this.remove(best)
    this.hold(best, standing)
    granted.push(best)
    const rest = this.queues.get(agentId)
    if (rest !== undefined) {
      this.queues.delete(agentId)
      this.queues.set(agentId, rest)
    }
    return true
  }

  /** The index of the post's standing, or undefined if there is no place for the post. */
  private standingFor(post: Post): number | undefined {
    const standing = standings.indexOf(this.standingOf(post))
    const fits = this.all.fits(standing) &&
      (this.agents.get(post.agentId)?.fits(standing) ?? true) &&
      (this.hosts.get(post.host)?.fits(standing) ?? true)
    return fits ? standing : undefined
  }

  private hold(post: Post, standing: number): void {
    this.held.set(post, standing)
    this.all.add(standing, 1)
    placesOf(this.agents, post.agentId, this.limits.perAgent, OF_AGENT).add(standing, 1)
    placesOf(this.hosts, post.host, this.limits.perHost, OF_HOST).add(standing, 1)
  }

  private tooMany(agentId: string): Post | undefined {
    const own = this.queues.get(agentId)
    if (own === undefined) return undefined
    if (own.length > this.limits.waiting.perAgent) return own.at(-1)
    if (this.queued <= this.limits.waiting.inAll) return undefined
    let longest = own
    for (const queue of this.queues.values()) if (queue.length > longest.length) longest = queue
    return longest.at(-1)
  }

  private remove(post: Post): void {
    const queue = this.queues.get(post.agentId)
    const at = queue?.indexOf(post) ?? -1
    if (queue === undefined || at < 0) return
    queue.splice(at, 1)
    this.queued--
    if (queue.length === 0) this.queues.delete(post.agentId)
  }
}

const placesOf = (
  known: Map<string, Places>,
  key: string,
  places: number,
  shares: Readonly<Record<Standing, number>>
): Places => {
  const found = known.get(key) ?? new Places(places, shares)
  known.set(key, found)
  return found
}

const release = (places: Map<string, Places>, key: string, standing: number): void => {
  const found = places.get(key)
  found?.add(standing, -1)
  if (found?.isEmpty === true) places.delete(key)
}
