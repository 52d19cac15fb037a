import { type PlaceLimits, PostScheduler } from "#domain/webhooks/PostScheduler"
import { type PostTarget, type Standing, standings, TargetHealth } from "#domain/webhooks/TargetHealth"
import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"

interface Post extends PostTarget {
  readonly no: number
}

type Step =
  | { readonly _tag: "Enter"; readonly agent: number; readonly host: number }
  /** A post under way ends. Its target has this standing from then on. */
  | { readonly _tag: "End"; readonly which: number; readonly standing: Standing }
  | { readonly _tag: "Withdraw"; readonly which: number }

const steps: fc.Arbitrary<ReadonlyArray<Step>> = fc.array(
  fc.oneof(
    { weight: 5, arbitrary: fc.record({ _tag: fc.constant("Enter" as const), agent: fc.nat(4), host: fc.nat(3) }) },
    {
      weight: 3,
      arbitrary: fc.record({
        _tag: fc.constant("End" as const),
        which: fc.nat(),
        standing: fc.constantFrom(...standings)
      })
    },
    { weight: 1, arbitrary: fc.record({ _tag: fc.constant("Withdraw" as const), which: fc.nat() }) }
  ),
  { maxLength: 150 }
)

const limits: fc.Arbitrary<PlaceLimits> = fc.record({
  inAll: fc.integer({ min: 1, max: 16 }),
  perAgent: fc.integer({ min: 1, max: 16 }),
  perHost: fc.integer({ min: 1, max: 6 }),
  waiting: fc.record({ inAll: fc.integer({ min: 1, max: 12 }), perAgent: fc.integer({ min: 1, max: 5 }) })
})

const share = (places: number, of: number): number => Math.max(1, Math.floor(places * of))

/** What the places should do, in plain loops. */
class Model {
  readonly underWay: Array<{ readonly post: Post; readonly standing: Standing }> = []
  readonly waiting: Array<Post> = []
  readonly known = new Map<string, Standing>()
  /** When an agent began to wait, or got its last place while it waited. */
  readonly turns = new Map<string, number>()
  private readonly limits: PlaceLimits
  private time = 0

  constructor(limits: PlaceLimits) {
    this.limits = limits
  }

  standing({ agentId, host }: PostTarget): Standing {
    return this.known.get(`${agentId} ${host}`) ?? "Unknown"
  }

  fits(post: Post): boolean {
    const wanted = this.standing(post)
    const within = (
      all: number,
      where: (one: Post) => boolean,
      late: number,
      unknown: number,
      silent: number
    ): boolean => {
      const count = (...those: ReadonlyArray<Standing>) =>
        this.underWay.filter(({ post, standing }) => where(post) && those.includes(standing)).length
      if (count("Silent", "Unknown", "Late", "Answers") >= all) return false
      if (wanted === "Answers") return true
      if (count("Silent", "Unknown", "Late") >= share(all, late)) return false
      if (wanted === "Late") return true
      if (count("Silent", "Unknown") >= share(all, unknown)) return false
      return wanted === "Unknown" || count("Silent") < share(all, silent)
    }
    return within(this.limits.inAll, () => true, 3 / 4, 3 / 4, 1 / 4) &&
      within(this.limits.perAgent, ({ agentId }) => agentId === post.agentId, 1 / 2, 1 / 8, 1 / 8) &&
      within(this.limits.perHost, ({ host }) => host === post.host, 1 / 2, 1 / 2, 1 / 2)
  }

  begin(post: Post): void {
    this.underWay.push({ post, standing: this.standing(post) })
  }

  of(agentId: string): ReadonlyArray<Post> {
    return this.waiting.filter((post) => post.agentId === agentId)
  }

  enter(post: Post): { readonly granted: ReadonlyArray<Post>; readonly refused: ReadonlyArray<Post> } {
    const { agentId } = post
    const { inAll, perAgent } = this.limits.waiting
    if (this.of(agentId).length === 0) this.turns.set(agentId, this.time++)
    this.waiting.push(post)
    if (this.fits(post)) {
      this.drop(post)
      this.begin(post)
      this.turns.set(agentId, this.time++)
      return { granted: [post], refused: [] }
    }
    const longest = Math.max(...this.waiting.map((one) => this.of(one.agentId).length))
    const own = this.of(agentId).length
    if (own > perAgent || (this.waiting.length > inAll && own === longest)) {
      this.drop(post)
      return { granted: [], refused: [post] }
    }
    if (this.waiting.length <= inAll) return { granted: [], refused: [] }
    const loser = this.inTurn().find((one) => this.of(one).length === longest)!
    const refused = this.of(loser).at(-1)!
    this.drop(refused)
    return { granted: [], refused: [refused] }
  }

  leave(post: Post): ReadonlyArray<Post> {
    const at = this.underWay.findIndex((one) => one.post === post)
    if (at < 0) {
      this.drop(post)
      return []
    }
    this.underWay.splice(at, 1)
    const granted: Array<Post> = []
    for (;;) {
      const next = this.inTurn().map((agentId) => this.best(agentId)).find((one) => one !== undefined)
      if (next === undefined) return granted
      this.drop(next)
      this.begin(next)
      this.turns.set(next.agentId, this.time++)
      granted.push(next)
    }
  }

  private best(agentId: string): Post | undefined {
    const able = this.of(agentId).filter((one) => this.fits(one))
    const standing = Math.max(...able.map((one) => standings.indexOf(this.standing(one))))
    return able.find((one) => standings.indexOf(this.standing(one)) === standing)
  }

  private inTurn(): ReadonlyArray<string> {
    return [...new Set(this.waiting.map(({ agentId }) => agentId))].toSorted((a, b) =>
      this.turns.get(a)! - this.turns.get(b)!
    )
  }

  private drop(post: Post): void {
    const at = this.waiting.indexOf(post)
    if (at >= 0) this.waiting.splice(at, 1)
  }
}

const LIMITS: PlaceLimits = { inAll: 64, perAgent: 8, perHost: 8, waiting: { inAll: 100, perAgent: 20 } }

const post = (no: number, agentId: string, host: string): Post => ({ no, agentId, host })

describe("places for posts", () => {
  it("agree with the model: bounds, shares, agents in turn, and no post waits while its standing has a place", () => {
    fc.assert(fc.property(limits, steps, (limits, steps) => {
      const model = new Model(limits)
      const places = new PostScheduler<Post>(limits, (target) => model.standing(target))
      let entered = 0
      let left = 0
      const leave = (one: Post): void => {
        assert.deepStrictEqual(places.leave(one), { granted: model.leave(one), refused: [] })
        left++
      }
      const step = (one: Step): void => {
        if (one._tag === "Enter") {
          const given = post(entered++, `agent-${one.agent}`, `host-${one.host}`)
          const moves = model.enter(given)
          left += moves.refused.length
          assert.deepStrictEqual(places.enter(given), moves)
        } else if (one._tag === "End" && model.underWay.length > 0) {
          const ended = model.underWay[one.which % model.underWay.length]!.post
          model.known.set(`${ended.agentId} ${ended.host}`, one.standing)
          leave(ended)
        } else if (one._tag === "Withdraw" && model.waiting.length > 0)
          leave(model.waiting[one.which % model.waiting.length]!)
        assert.deepStrictEqual([places.underWay, places.waiting], [model.underWay.length, model.waiting.length])
        assert.isFalse(model.waiting.some((waiting) => model.fits(waiting)), "a post waits for nothing")
        assert.isAtMost(places.underWay, limits.inAll)
        assert.isAtMost(places.waiting, limits.waiting.inAll)
      }
      for (const one of steps) step(one)
      while (model.underWay.length > 0) step({ _tag: "End", which: 0, standing: "Silent" })
      assert.deepStrictEqual([places.underWay, places.waiting, left], [0, 0, entered])
    }))
  })

  it("a quarter of them is kept for targets that answered lately, however many others there are", () => {
    const places = new PostScheduler<Post>(LIMITS, ({ agentId }) => agentId === "healthy" ? "Answers" : "Unknown")
    for (let i = 0; i < 200; i++) places.enter(post(i, `dead-${i}`, `host-${i}`))
    assert.strictEqual(places.underWay, 48)
    const healthy = Array.from({ length: 8 }, (_, i) => post(i, "healthy", "host"))
    for (const one of healthy) assert.deepStrictEqual(places.enter(one).granted, [one])
    assert.lengthOf(places.enter(post(8, "healthy", "elsewhere")).granted, 0)
  })

  it("forty agents with five dead targets each leave some to the new target of another agent", () => {
    const places = new PostScheduler<Post>(LIMITS, () => "Unknown")
    for (let i = 0; i < 200; i++) places.enter(post(i, `dead-${i % 40}`, `host-${i}`))
    assert.strictEqual(places.underWay, 40)
    assert.lengthOf(places.enter(post(0, "new", "host")).granted, 1)
  })

  it("half of one host's are kept too, so that an agent whose paths there are dead leaves them to the others", () => {
    const places = new PostScheduler<Post>(LIMITS, ({ agentId }) => agentId === "healthy" ? "Answers" : "Silent")
    for (let i = 0; i < 100; i++) places.enter(post(i, `dead-${i}`, "shared"))
    assert.strictEqual(places.underWay, 4)
    for (let i = 0; i < 4; i++) assert.lengthOf(places.enter(post(i, "healthy", "shared")).granted, 1)
    assert.lengthOf(places.enter(post(4, "healthy", "shared")).granted, 0)
  })

  it("new targets have places that silent ones cannot take", () => {
    const places = new PostScheduler<Post>(LIMITS, ({ agentId }) => agentId === "new" ? "Unknown" : "Silent")
    for (let i = 0; i < 100; i++) places.enter(post(i, `dead-${i}`, `host-${i}`))
    assert.strictEqual(places.underWay, 16)
    assert.lengthOf(places.enter(post(0, "new", "host")).granted, 1)
  })

  it("an agent's dead targets leave most of its places to its targets that answer", () => {
    const places = new PostScheduler<Post>(
      LIMITS,
      ({ host }) => host === "healthy" ? "Answers" : host === "slow" ? "Late" : "Silent"
    )
    for (const host of ["dead", "dead", "slow", "slow", "slow", "slow", "healthy", "healthy", "healthy", "healthy"])
      places.enter(post(0, "agent", host))
    assert.deepStrictEqual([places.underWay, places.waiting], [1 + 3 + 4, 2])
  })

  it("when too many posts wait, the agent with the most of them loses its newest one, and the others keep theirs", () => {
    const places = new PostScheduler<Post>({ ...LIMITS, inAll: 1, waiting: { inAll: 4, perAgent: 3 } }, () => "Unknown")
    places.enter(post(0, "first", "host"))
    const many = [1, 2, 3, 4].map((no) => post(no, "many", "host"))
    const [, , third, fourth] = many
    assert.deepStrictEqual(many.flatMap((one) => places.enter(one).refused), [fourth!])
    assert.lengthOf(places.enter(post(5, "second", "host")).refused, 0)
    assert.deepStrictEqual(places.enter(post(6, "third", "host")).refused, [third!])
    // Now every agent waits with few: one more of the agent with the most is refused itself.
    const last = post(7, "many", "host")
    assert.deepStrictEqual(places.enter(last).refused, [last])
  })
})

describe("the standing of targets", () => {
  const target = { agentId: "agt", host: "host.example" }
  const rules = { remembered: 3, lastsMs: 1_000, lateMs: 100 }

  it("is that of the last post: answered in time, answered late, or not answered in time", () => {
    const known = new TargetHealth(rules)
    assert.strictEqual(known.of(target, 0), "Unknown")
    known.ended(target, true, 100, 0)
    assert.strictEqual(known.of(target, 999), "Answers")
    assert.strictEqual(known.of(target, 1_000), "Unknown")
    known.ended(target, false, 101, 2_000)
    assert.strictEqual(known.of(target, 2_000), "Silent")
    // Refused at once: it says nothing of how long a post lasts.
    known.ended(target, false, 1, 2_100)
    assert.strictEqual(known.of(target, 2_100), "Silent")
    known.ended(target, true, 101, 2_200)
    assert.strictEqual(known.of(target, 2_200), "Late")
  })

  it("is the agent's own, so nobody spoils a host for the others", () => {
    const known = new TargetHealth(rules)
    known.ended(target, true, 1, 0)
    known.ended({ ...target, agentId: "other" }, false, 1_000, 0)
    assert.deepStrictEqual([known.of(target, 1), known.of({ ...target, host: "host.example:81" }, 1)], [
      "Answers",
      "Unknown"
    ])
  })

  it("is forgotten first of the target whose last post is the oldest", () => {
    const known = new TargetHealth({ ...rules, remembered: 3 })
    const at = (host: string) => ({ agentId: "agt", host })
    for (const [i, host] of ["a", "b", "c", "a", "d"].entries()) known.ended(at(host), true, 1, i)
    assert.deepStrictEqual(["a", "b", "c", "d"].map((host) => known.of(at(host), 5)), [
      "Answers",
      "Unknown",
      "Answers",
      "Answers"
    ])
    assert.strictEqual(known.size, 3)
  })
})
