/**
 * A collection of items that are in progress, for the rare cases in which all items are visited. The items are stored
 * in an array with free places. V8 would often replace the table of a Set or Map that changes so much, and the items of
 * an old table would stay in memory until a full garbage collection.
 */
export class SlotList<A> {
  readonly #all: Array<A | undefined> = []
  readonly #free: Array<number> = []

  /** Adds an item and returns its place, for `remove`. */
  add(one: A): number {
    const place = this.#free.pop() ?? this.#all.length
    this.#all[place] = one
    return place
  }

  /** Must be called once for each place that `add` returned. */
  remove(place: number): void {
    this.#all[place] = undefined
    this.#free.push(place)
  }

  get all(): ReadonlyArray<A> {
    return this.#all.filter((one) => one !== undefined)
  }
}
