/**
 * What is under way, for the few times when somebody must go through all of it. An array with free places and not a Set:
 * V8 replaces the table of a Set or Map through which much passes again and again, and what was in the old one lives on
 * until a full collection takes that.
 */
export class UnderWay<A> {
  readonly #all: Array<A | undefined> = []
  readonly #free: Array<number> = []

  /** Returns its place, to remove it by. */
  add(one: A): number {
    const place = this.#free.pop() ?? this.#all.length
    this.#all[place] = one
    return place
  }

  /** Once for each place that `add` returned. */
  remove(place: number): void {
    this.#all[place] = undefined
    this.#free.push(place)
  }

  get all(): ReadonlyArray<A> {
    return this.#all.filter((one) => one !== undefined)
  }
}
