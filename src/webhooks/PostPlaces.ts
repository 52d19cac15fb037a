import { type Standing, standings, type Target } from "./TargetStandings.ts"

export interface PlaceLimits {
  /** Posts under way. */
  readonly inAll: number
  readonly perAgent: number
  readonly perHost: number
  /** Posts that wait for a place. */
  readonly waiting: { readonly inAll: number; readonly perAgent: number }
}

/** The posts that may begin now, and those that must not wait any longer. */
export interface Moves<Post> {
  readonly granted: ReadonlyArray<Post>
  readonly refused: ReadonlyArray<Post>
}

/**
 * The share of the places that posts may hold whose targets have this standing or a worse one. So half of all places, and half of
 * the places of each agent and of each host, are kept for targets that answered lately. A quarter of all places is kept for these
 * targets and for new ones.
 */
const SHARES_IN_ALL = { Silent: 1 / 4, Unknown: 1 / 2, Answers: 1 }
const SHARES = { Silent: 1 / 2, Unknown: 1 / 2, Answers: 1 }

const BEST = standings.indexOf("Answers")

/** The places of one agent, of one host, or of all together. Every share has at least one place. */
class Places {
  private readonly most: ReadonlyArray<number>
  /** By index of the standing: the posts under way that began with this standing or a worse one. */
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
 * Decides which posts are under way and which wait. A post waits only while its standing has no place left in all, for its agent or
 * for its host. A place that becomes free goes to the agents in turn, and to each agent's posts in the order of their arrival. When
 * too many posts wait, the agent with the most waiting posts loses its newest one. A post is known by its identity.
 */
export class PostPlaces<Post extends Target> {
  private readonly limits: PlaceLimits
  private readonly standingOf: (target: Target) => Standing
  private readonly all: Places
  private readonly agents = new Map<string, Places>()
  private readonly hosts = new Map<string, Places>()
  /** By agent. The agent whose turn is next comes first. No queue is empty. */
  private readonly queues = new Map<string, Array<Post>>()
  /** The index of the standing with which each post under way began. */
  private readonly held = new Map<Post, number>()
  private queued = 0

  constructor(limits: PlaceLimits, standingOf: (target: Target) => Standing) {
    this.limits = limits
    this.standingOf = standingOf
    this.all = new Places(limits.inAll, SHARES_IN_ALL)
  }

  get underWay(): number {
    return this.held.size
  }

  get waiting(): number {
    return this.queued
  }

  /** A post wants a place. */
  enter(post: Post): Moves<Post> {
    const queue = this.queues.get(post.agentId)
    if (queue === undefined && this.begins(post)) return { granted: [post], refused: [] }
    if (queue === undefined) this.queues.set(post.agentId, [post])
    else queue.push(post)
    this.queued++
    // The posts of other agents that wait had no place before, and have none now.
    const granted: Array<Post> = []
    while (this.grantOne(post.agentId, granted));
    const refused = this.tooMany(post.agentId)
    if (refused !== undefined) this.remove(refused)
    return { granted, refused: refused === undefined ? [] : [refused] }
  }

  /** A post has ended, or does not want a place any more. Does nothing for a post that was refused. */
  leave(post: Post): Moves<Post> {
    const standing = this.held.get(post)
    if (standing === undefined) {
      this.remove(post)
      return { granted: [], refused: [] }
    }
    this.held.delete(post)
    this.all.add(standing, -1)
    release(this.agents, post.agentId, standing)
    release(this.hosts, post.host, standing)
    const granted: Array<Post> = []
    // An agent that gets a place moves to the end, where this loop comes to it again.
    for (const agentId of this.queues.keys()) {
      if (!this.all.fits(BEST)) break
      this.grantOne(agentId, granted)
    }
    return { granted, refused: [] }
  }

  /** Gives a place to the first post of an agent that can have one. */
  private grantOne(agentId: string, granted: Array<Post>): boolean {
    if (this.agents.get(agentId)?.fits(BEST) === false) return false
    const post = this.queues.get(agentId)?.find((post) => this.begins(post))
    if (post === undefined) return false
    this.remove(post)
    const rest = this.queues.get(agentId)
    if (rest !== undefined) {
      this.queues.delete(agentId)
      this.queues.set(agentId, rest)
    }
    granted.push(post)
    return true
  }

  /** Takes a place for a post if there is one. */
  private begins(post: Post): boolean {
    const { agentId, host } = post
    const standing = standings.indexOf(this.standingOf(post))
    if (!this.all.fits(standing)) return false
    const agent = this.agents.get(agentId) ?? new Places(this.limits.perAgent, SHARES)
    const there = this.hosts.get(host) ?? new Places(this.limits.perHost, SHARES)
    if (!agent.fits(standing) || !there.fits(standing)) return false
    this.held.set(post, standing)
    this.agents.set(agentId, agent)
    this.hosts.set(host, there)
    for (const places of [this.all, agent, there]) places.add(standing, 1)
    return true
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

const release = (places: Map<string, Places>, key: string, standing: number): void => {
  const found = places.get(key)
  found?.add(standing, -1)
  if (found?.isEmpty === true) places.delete(key)
}
