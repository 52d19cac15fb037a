import { assert } from "@effect/vitest"

/** By how much the clock of a server, which follows its database's, may differ from this process's. */
const ERROR_MS = 1_000

/**
 * The time from its making until it is asked. A time that a server gave meanwhile lies in it, however long the machine
 * took.
 */
export class Moment {
  readonly #began = Date.now()

  /** Asserts that a time of the answer, without `later` milliseconds, lies in this moment. */
  has(time: string, later = 0): void {
    const at = Date.parse(time) - later
    assert.isAtLeast(at, this.#began - ERROR_MS)
    assert.isAtMost(at, Date.now() + ERROR_MS)
  }

  /** Asserts that a number of seconds since `time` that was counted in this moment is right. */
  hasAge(seconds: number, time: string): void {
    assert.isAtLeast(seconds * 1_000, this.#began - Date.parse(time) - 2 * ERROR_MS)
    assert.isAtMost(seconds * 1_000, Date.now() - Date.parse(time) + 2 * ERROR_MS)
  }
}
