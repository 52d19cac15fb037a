import type { Adapter, Found, JsonReading, Where } from "./Adapters.ts"

/** How a run ended. */
export type Ended =
  | { readonly _tag: "Exited"; readonly code: number | null; readonly stdout: string }
  | { readonly _tag: "TimedOut" }
  | { readonly _tag: "TooMuchOutput" }
  | { readonly _tag: "NotStarted"; readonly reason: string }

/** The result of a run. */
export type Outcome =
  | { readonly _tag: "Said"; readonly text: string; readonly session: string | null }
  | { readonly _tag: "Failed"; readonly why: string }

const valueAt = (value: unknown, path: string): unknown =>
  path.split(".").reduce<unknown>((inner, key) => {
    if (Array.isArray(inner)) return inner.at(Number(key)) as unknown
    return typeof inner === "object" && inner !== null ? Reflect.get(inner, key) as unknown : undefined
  }, value)

const matches = (value: unknown, where: Where): boolean =>
  Object.entries(where).every(([path, wanted]) => {
    const found = valueAt(value, path)
    return wanted === true ? found !== undefined && found !== null && found !== false : found === wanted
  })

const parsed = (text: string): ReadonlyArray<unknown> => {
  try {
    const value: unknown = JSON.parse(text)
    return typeof value === "object" && value !== null ? [value] : []
  } catch {
    return []
  }
}

/**
 * The JSON objects in the output. Skips the text before the first line with `{`, because programs write warnings before
 * their JSON.
 */
const objectsIn = (stdout: string, format: JsonReading["format"]): ReadonlyArray<unknown> => {
  const lines = stdout.split("\n")
  if (format === "lines") return lines.flatMap(parsed)
  const whole = parsed(stdout)
  if (whole.length > 0) return whole
  return lines.flatMap((line, at) => line.startsWith("{") ? [lines.slice(at).join("\n")] : []).map(parsed).find((
    found
  ) => found.length > 0) ?? []
}

const lastText = (objects: ReadonlyArray<unknown>, { at, where = {} }: Found): string | undefined =>
  objects.filter((object) => matches(object, where)).map((object) => valueAt(object, at)).findLast((value) =>
    typeof value === "string"
  )

/** Derives the outcome of a run. A program that exits with 0 has still failed if its output does not report success. */
export const readOutcome = (adapter: Adapter, ended: Ended, session: string | null): Outcome => {
  if (ended._tag === "TimedOut") return { _tag: "Failed", why: "the run took too long" }
  if (ended._tag === "TooMuchOutput") return { _tag: "Failed", why: "the run wrote too much" }
  if (ended._tag === "NotStarted") return { _tag: "Failed", why: `${adapter.name} cannot be started: ${ended.reason}` }
  const { reading } = adapter
  if (ended.code !== 0) return { _tag: "Failed", why: `the run ended with ${ended.code ?? "a signal"}` }
  if (reading === "text") return { _tag: "Said", text: ended.stdout, session: null }
  const objects = objectsIn(ended.stdout, reading.format)
  if (reading.failure !== undefined && objects.some((object) => matches(object, reading.failure ?? {}))) {
    return { _tag: "Failed", why: "the run reports a failure" }
  }
  const text = lastText(objects, reading.text)
  if (text === undefined || !objects.some((object) => matches(object, reading.success))) {
    return { _tag: "Failed", why: "the run ended with 0 but does not report success" }
  }
  return { _tag: "Said", text, session: lastText(objects, reading.session) ?? session }
}
