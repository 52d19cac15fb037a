/** What a history found that should not be. */
export class Violation extends Error {
  override readonly name = "Violation"
}

export const check = (holds: boolean, what: () => string): void => {
  if (!holds) throw new Violation(what())
}

export const same = (actual: unknown, expected: unknown, what: string): void => {
  const left = JSON.stringify(actual)
  const right = JSON.stringify(expected)
  check(left === right, () => `${what}: got ${left}, expected ${right}`)
}
