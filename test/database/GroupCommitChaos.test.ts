import { makeCommitQueue, type Settled } from "#infrastructure/database/CommitQueue"
import { DatabaseFault, sqlError } from "#infrastructure/database/SqlValues"
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { TestClock } from "effect/testing"

interface Item {
  readonly id: number
  readonly rows: readonly [string, string]
}

const fault = (code?: string) =>
  sqlError(new DatabaseFault({ ...(code === undefined ? {} : { code }), message: "refused" }), "execute")

/** Undefined: the connection is lost. */
const FAULTS = ["53100", "58030", "25006", "40001", "40P01", "57014", "55P03", "22021", undefined]

/** Pseudo-random numbers from 0 to 1 (mulberry32). */
const randomOf = (seed: number) => () => {
  seed = (seed + 0x6d2b79f5) | 0
  let t = Math.imul(seed ^ (seed >>> 15), 1 | seed)
  t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
  return ((t ^ (t >>> 14)) >>> 0) / 4294967296
}

/** Row locks, first come, first served. */
class Rows {
  private serial = 0
  readonly holders = new Map<string, number>()
  private readonly queues = new Map<string, Array<number>>()

  token(): number {
    return ++this.serial
  }

  /** Whether the session has the lock now; if not, it waits in the queue. */
  take(row: string, token: number): boolean {
    const queue = this.queues.get(row) ?? []
    this.queues.set(row, queue)
    if (this.holders.get(row) === token) return true
    if (!queue.includes(token)) queue.push(token)
    if (this.holders.has(row) || queue[0] !== token) return false
    queue.shift()
    this.holders.set(row, token)
    return true
  }

  release(token: number): void {
    for (const [row, holder] of this.holders) if (holder === token) this.holders.delete(row)
    for (const queue of this.queues.values()) if (queue.includes(token)) queue.splice(queue.indexOf(token), 1)
  }
}

const STEP_MS = 10

const run = Effect.fnUntraced(function*(seed: number) {
  const random = randomOf(seed)
  const pick = <A>(list: ReadonlyArray<A>): A => list[Math.floor(random() * list.length)]!
  const below = (n: number) => Math.floor(random() * n)
  const rows = new Rows()
  const [faulty, slow, lanes] = [random() < 0.5 ? 0.15 : 0, pick([0, 50, 450]), pick([1, 2, 3])]
  let calm = false
  let passed = 0
  const committed: Array<Item> = []
  const group = yield* makeCommitQueue<Item, number>({
    name: "chaos",
    lanes,
    laneOf: ({ rows: [conversation] }) => Number(conversation.slice(1)),
    rowsOf: () => 1,
    bytesOf: () => 1,
    maxRows: 8,
    maxBytes: 1e6,
    capacity: 10_000,
    batchPerTick: random() < 0.5,
    commit: (batch, lockMs) =>
      Effect.suspend(() => {
        const token = rows.token()
        return Effect.ensuring(
          Effect.gen(function*() {
            for (const row of [...new Set(batch.flatMap((item) => item.rows))].sort()) {
              for (let waited = 0; !rows.take(row, token); waited += STEP_MS) {
                if (waited >= lockMs) return yield* fault("55P03")
                yield* Effect.sleep(STEP_MS)
              }
            }
            if (!calm && random() < faulty / 3) throw new Error("a defect")
            const code = !calm && random() < faulty ? pick(FAULTS) : ""
            if (code !== "" && (code !== undefined || random() < 0.5)) return yield* fault(code)
            if (slow > 0) yield* Effect.sleep(below(slow) + STEP_MS)
            committed.push(...batch)
            return code === undefined ? yield* fault() : batch.map(({ id }) => id)
          }),
          Effect.sync(() => rows.release(token))
        )
      }),
    locks: {
      of: (item) => item.rows,
      held: (items) =>
        Effect.gen(function*() {
          if (!calm && random() < faulty / 3) return yield* fault("57014")
          yield* Effect.sleep(below(3) * STEP_MS)
          return new Map(
            items.flatMap((item) => item.rows).flatMap((row) => {
              const holder = rows.holders.get(row)
              return holder === undefined ? [] : [[row, String(holder)] as const]
            })
          )
        })
    }
  })
  const settled = new Map<number, Array<Settled<number>>>()
  const leaving: Array<{ readonly at: number; readonly token: number }> = []
  let serial = 0
  for (; passed < 25_000; passed += STEP_MS) {
    calm = passed > 8_000
    if (passed < 6_000) {
      if (random() < 0.3) {
        for (let n = 0; n <= below(4); n++) {
          const item: Item = { id: serial++, rows: [`c${below(6)}`, `i${below(4)}`] }
          group.submit(item, (one) => void settled.set(item.id, [...settled.get(item.id) ?? [], one]))
        }
      }
      if (random() < 0.02) {
        const token = rows.token()
        if (rows.take(random() < 0.5 ? `c${below(6)}` : `i${below(4)}`, token)) {
          leaving.push({ at: passed + pick([50, 400, 2_000, 7_000]), token })
        } else rows.release(token)
      }
    }
    for (const { at, token } of leaving) if (at <= passed) rows.release(token)
    yield* Effect.promise(() => new Promise((resolve) => setImmediate(() => setImmediate(resolve))))
    yield* TestClock.adjust(STEP_MS)
    if (passed > 8_000 && group.size() === 0) break
  }
  yield* TestClock.adjust(1_000)
  assert.strictEqual(group.size(), 0)
  yield* group.idle
  const about = `seed ${seed}`
  for (let id = 0; id < serial; id++) assert.strictEqual(settled.get(id)?.length, 1, `${about}: item ${id}`)
  const ids = committed.map(({ id }) => id)
  assert.strictEqual(new Set(ids).size, ids.length, about)
  for (const [id, [one]] of settled) if (one?._tag === "Done") assert.include(ids, id, about)
  for (let c = 0; c < 6; c++) {
    const order = committed.filter((item) => item.rows[0] === `c${c}`).map(({ id }) => id)
    assert.deepStrictEqual(order, [...order].sort((a, b) => a - b), about)
  }
})

for (const seed of [1, 9, 10, 24, 39, 88]) {
  it.effect(`no item is lost, doubled or reordered, whatever is locked and fails (seed ${seed})`, () => run(seed))
}
