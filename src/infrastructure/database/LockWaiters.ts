import type { Effect } from "effect"
import type { SqlError } from "effect/sql"

/** The names of the rows of an item. Items with the same first name keep their order. */
type Names = readonly [string, ...Array<string>]

/**
 * The rows that the commit of an item locks. While another session has locked one of them, the item waits outside its
 * batch.
 */
export interface Locks<In> {
  /** The rows that are known before the commit. */
  readonly of: (item: In) => Names
  /**
   * Returns the rows of these items that are locked right now, each with the holder of the lock. Does not wait for
   * locks.
   */
  readonly held: (items: ReadonlyArray<In>) => Effect.Effect<ReadonlyMap<string, string>, SqlError.SqlError>
}

/** An item in a queue, the time since which it waits, and its position in the order of submission. */
interface Queued<In> {
  readonly item: In
  readonly since: number
  readonly order: number
}

/**
 * The items of a commit queue that wait because other sessions have locked their rows. This class decides which items
 * wait. The queue reads the locks and commits the items.
 */
export class LockWaiters<In, Item extends Queued<In>> {
  private readonly rowsOf: (item: In) => Names
  private items: Array<Item> = []
  /** The first row name of each blocked item. Later items with the same first name wait behind the blocked items. */
  private readonly behind = new Set<string>()
  /** Rows that other sessions have locked, and their holders. */
  private readonly holders = new Map<string, string>()
  /** The row names of the items that the last call of `takeFree` returned. */
  private retried: ReadonlySet<string> = new Set()

  constructor(rowsOf: (item: In) => Names) {
    this.rowsOf = rowsOf
  }

  get size(): number {
    return this.items.length
  }

  /** The blocked items, without their positions in the queue. */
  get all(): ReadonlyArray<In> {
    return this.items.map(({ item }) => item)
  }

  /** Whether a new item must wait: for a locked row, behind a blocked item, or behind items that are being retried. */
  mustWait(item: In): boolean {
    const names = this.rowsOf(item)
    return this.isHeld(names) || names.some((name) => this.retried.has(name))
  }

  add(item: Item): void {
    this.items.push(item)
    this.behind.add(this.rowsOf(item.item)[0])
  }

  /** Blocks the items of the list that must wait, and returns the rest. */
  divert(list: ReadonlyArray<Item>): Array<Item> {
    return this.divertIf(list, (names) => this.isHeld(names))
  }

  /** Records that these rows are locked, each with its holder. */
  lock(found: ReadonlyMap<string, string>): void {
    for (const [name, holder] of found) this.holders.set(name, holder)
  }

  /** The rows that are known to be locked at this moment, with their holders. */
  get locked(): ReadonlyMap<string, string> {
    return new Map(this.holders)
  }

  /**
   * Compares the rows that were known to be locked (`locked`) with those that are locked now. If the holder of a row
   * has changed, the items of the row are retried, and their statement queues for the lock. Only a row with the same
   * holder as before still blocks its items.
   */
  unlock(known: ReadonlyMap<string, string>, found: ReadonlyMap<string, string>): void {
    for (const [name, holder] of known) {
      if (found.get(name) !== holder && this.holders.get(name) === holder) this.holders.delete(name)
    }
  }

  /** Removes and returns the items that have waited since `due` or longer. */
  takeLate(due: number): ReadonlyArray<Item> {
    const late = this.items.filter(({ since }) => since <= due)
    if (late.length > 0) this.items = this.items.filter(({ since }) => since > due)
    return late
  }

  /**
   * Removes and returns the items whose rows are free. `earlier` contains the items in the queues, which are committed
   * first.
   */
  takeFree(earlier: ReadonlyArray<Item>): Array<Item> {
    const waited = this.items.sort((a, b) => a.order - b.order)
    this.items = []
    this.behind.clear()
    const before = new Set(earlier.map(({ item }) => this.rowsOf(item)[0]))
    const free = this.divertIf(waited, (names) => before.has(names[0]) || this.isHeld(names))
    this.retried = new Set(free.flatMap(({ item }) => this.rowsOf(item)))
    return free
  }

  /** Forgets all locks. Call it when no item is blocked. */
  clear(): void {
    this.holders.clear()
    this.behind.clear()
  }

  /** Whether an item with these rows must wait for a lock, or behind an item that waits for one. */
  private isHeld(names: Names): boolean {
    return this.behind.has(names[0]) || names.some((name) => this.holders.has(name))
  }

  private divertIf(list: ReadonlyArray<Item>, mustWait: (names: Names) => boolean): Array<Item> {
    return list.filter((item) => {
      const waits = mustWait(this.rowsOf(item.item))
      if (waits) this.add(item)
      return !waits
    })
  }
}
