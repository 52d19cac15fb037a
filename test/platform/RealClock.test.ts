import { assert, describe, it } from "@effect/vitest"
import { globSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { parseAst } from "rolldown/parseAst"

/*
 * The default tests pass on a machine of any speed: no test asserts a duration of the real clock or depends on one. This rule finds what
 * would.
 */

/** What each kind of finding is, and what to write instead. */
const KINDS = {
  clock:
    "measures the real clock: use a Stopwatch or `promptly` of test/support/Promptly.ts, which assert durations in `npm run test:pace` alone",
  now:
    "compares with the real clock: use `Moment` of test/support/Moment.ts, or make the order certain by a latch or the test's clock",
  sleep:
    "rests for a fixed time: wait for the condition with `eventually`; `chanceFor`, `elapse` and `breath` (test/support/Eventually.ts) say what a rest is for",
  statement:
    "rests in a statement: let it wait for a lock that the test holds, or for so long (20 s) that its end is not awaited",
  retry: "is repeated until it passes: make its order certain",
  bound: "has a bound that a busy machine exceeds: leave it out, for the default of test/support/Eventually.ts",
  timeout: "has a time-out of its own: leave it out, for the default of vitest.config.ts, which is for what hangs"
} as const
type Kind = keyof typeof KINDS

/** Where a finding is right, and why. */
const EXCEPTIONS: ReadonlyArray<readonly [file: string, kind: Kind, why: string]> = [
  ["test/contract/Generated.test.ts", "timeout", "longer than the default, for as many runs as are asked for"],
  ["test/database/Sql.test.ts", "statement", "whether the statement is over changes nothing"],
  ["test/pages/App.test.ts", "clock", "is printed only"],
  ["test/pages/Markdown.test.ts", "clock", "asserts in `npm run test:pace` alone"],
  ["test/search/ManyMessages.test.ts", "clock", "a slow machine has longer turns, and only short ones fail"],
  ["test/support/Eventually.ts", "now", "its bound is generous"],
  ["test/support/Eventually.ts", "sleep", "the rests that say what they are for"],
  ["test/support/FakeRedisServer.js", "clock", "it is Redis's clock"],
  ["test/support/FakeRedisServer.js", "sleep", "it delays answers"],
  ["test/support/GlobalSetup.ts", "now", "its bound is generous"],
  ["test/support/GlobalSetup.ts", "sleep", "it waits for processes to end"],
  ["test/support/Link.ts", "clock", "it delays bytes"],
  ["test/support/Link.ts", "sleep", "it delays bytes"],
  ["test/support/Moment.ts", "now", "a moment lasts as long as the machine takes"],
  ["test/support/Promptly.ts", "clock", "asserts in `npm run test:pace` alone"],
  ["test/support/Promptly.ts", "sleep", "asserts in `npm run test:pace` alone"],
  ["test/support/ServerProcess.ts", "now", "its bound is generous"],
  ["test/support/ServerProcess.ts", "sleep", "it waits for processes to start and to end"],
  ["test/support/SlowClock.js", "clock", "it is the clock"]
]

interface Node {
  readonly type: string
  readonly start: number
  readonly [key: string]: unknown
}
interface Finding {
  readonly kind: Kind
  readonly line: number
}

const isNode = (value: unknown): value is Node =>
  typeof value === "object" && value !== null && typeof (value as Node).type === "string"
const childrenOf = (node: Node): ReadonlyArray<Node> => Object.values(node).flat().filter(isNode)

/** `performance.now` for that expression; empty for what is not a name with members. */
const nameOf = (node: unknown): string => {
  if (!isNode(node)) return ""
  if (node.type === "Identifier") return String(node["name"])
  if (node.type !== "MemberExpression" || node["computed"] === true) return ""
  const [object, property] = [nameOf(node["object"]), nameOf(node["property"])]
  return object === "" ? "" : `${object}.${property}`
}

const numberOf = (node: unknown): number | undefined => {
  const value = isNode(node) && node.type === "Literal" ? node["value"] : undefined
  return typeof value === "number" ? value : undefined
}

const MEASURES = new Set(["performance.now", "process.cpuUsage", "process.hrtime", "process.hrtime.bigint"])
const COMPARES = new Set(["-", "<", ">", "<=", ">="])
const IS_TEST = /^(?:it|test)(?:\.|$)/
const IS_ASSERTION = /^(?:assert|expect)(?:\.|$)/
const LONGEST_WAIT_MS = 60_000
/** A statement that rests for longer never ends before what the test does meanwhile. */
const LONG_REST_SECONDS = 20

/** Files without any of these words have no findings, and need not be parsed. */
const WORDS =
  /performance|cpuUsage|hrtime|Date\.now|getTime|AbortSignal\.timeout|setTimeout|setInterval|Effect\.sleep|pg_sleep|retry: \d|timeout: |, [\d_]+\)/

/** The findings in a file, in the order of their lines. */
const findingsIn = (text: string): ReadonlyArray<Finding> => {
  if (!WORDS.test(text)) return []
  const program = parseAst(text, { lang: "ts" }) as unknown as Node
  const isLive = /\bit\.live\b|excludeTestServices/.test(text)
  /** The names under which this file rests. */
  const rests = new Set(["setTimeout", "setInterval"])
  const found: Array<Finding> = []
  const above: Array<Node> = []
  const visit = (node: Node): void => {
    const add = (kind: Kind): void => {
      found.push({ kind, line: text.slice(0, node.start).split("\n").length })
    }
    const args = Array.isArray(node["arguments"]) ? node["arguments"] as ReadonlyArray<unknown> : []
    if (node.type === "ImportSpecifier" && nameOf(node["imported"]) === "setTimeout") rests.add(nameOf(node["local"]))
    if (node.type === "CallExpression") {
      const name = nameOf(node["callee"])
      if (MEASURES.has(name)) add("clock")
      if (name === "Date.now" && isCompared(above)) add("now")
      const date = dateOf(node["callee"])
      if (date !== undefined && isCompared(above) && (isPresent(date) || isAssertedDifference(above))) add("now")
      // The delay is the first argument of that of node:timers/promises, and the second one of the other.
      if (rests.has(name) && args.some((arg) => !isFunction(arg)) && !args.some((arg) => numberOf(arg) === 0))
        add("sleep")
      if (name === "Effect.sleep" && isLive && !above.some((one) => nameOf(one["callee"]).startsWith("it.effect")))
        add("sleep")
      if (["eventually", "within"].includes(name) && (numberOf(args[2]) ?? LONGEST_WAIT_MS) < LONGEST_WAIT_MS)
        add("bound")
      if (name === "AbortSignal.timeout" && (numberOf(args[0]) ?? 0) < LONGEST_WAIT_MS) add("bound")
      if (IS_TEST.test(name) && numberOf(args[2]) !== undefined) add("timeout")
    }
    if (node.type === "Property" && nameOf(node["key"]) === "retry" && numberOf(node["value"]) !== undefined)
      add("retry")
    if (node.type === "Property" && nameOf(node["key"]) === "timeout" && isOptionOfTest(above)) add("timeout")
    if (node.type === "TemplateElement" || (node.type === "Literal" && typeof node["value"] === "string")) {
      const written = node.type === "Literal"
        ? String(node["value"])
        : String((node["value"] as { readonly raw?: string }).raw)
      const seconds = /\bpg_sleep\((\d+(?:\.\d+)?)\)/.exec(written)?.[1]
      if (seconds !== undefined && Number(seconds) < LONG_REST_SECONDS) add("statement")
    }
    above.push(node)
    for (const child of childrenOf(node)) visit(child)
    above.pop()
  }
  visit(program)
  return found
}

const isFunction = (value: unknown): boolean =>
  isNode(value) &&
  (value.type.endsWith("FunctionExpression") ||
    (value.type === "Identifier" && /^(?:resolve|done|go|run|r)$/.test(nameOf(value))))

const isComparison = (node: Node): boolean => node.type === "BinaryExpression" && COMPARES.has(String(node["operator"]))

/** Whether an assertion compares or subtracts what is below these nodes. */
const isAssertedDifference = (above: ReadonlyArray<Node>): boolean =>
  above.some(isComparison) &&
  above.some((one) => one.type === "CallExpression" && IS_ASSERTION.test(nameOf(one["callee"])))

/** The date of which a call of `getTime` returns the time. */
const dateOf = (callee: unknown): Node | undefined =>
  isNode(callee) && callee.type === "MemberExpression" && nameOf(callee["property"]) === "getTime" &&
    isNode(callee["object"])
    ? callee["object"]
    : undefined

/** Whether an expression is `new Date()`. */
const isPresent = (node: Node): boolean =>
  node.type === "NewExpression" && nameOf(node["callee"]) === "Date" &&
  Array.isArray(node["arguments"]) && node["arguments"].length === 0

const isTestOrSuite = (name: string): boolean => IS_TEST.test(name) || /^(?:describe|layer)(?:\.|$)/.test(name)

/** Whether a property is in an object that is itself an argument of a test or of a suite. */
const isOptionOfTest = (above: ReadonlyArray<Node>): boolean =>
  above.at(-1)?.type === "ObjectExpression" && above.at(-2)?.type === "CallExpression" &&
  isTestOrSuite(callOf(above.at(-2)!))

/** `layer` for `layer(…)(…)` too. */
const callOf = (node: Node): string => {
  const callee = node["callee"]
  return isNode(callee) && callee.type === "CallExpression" ? callOf(callee) : nameOf(callee)
}

/** Whether the time just read is compared or subtracted, kept in a variable, or asserted. */
const isCompared = (above: ReadonlyArray<Node>): boolean => {
  for (const node of above.toReversed()) {
    if (node.type === "NewExpression" || node.type.endsWith("FunctionExpression") || node.type === "TemplateLiteral")
      return false
    if (isComparison(node)) return true
    if (node.type === "BinaryExpression" && node["operator"] === "%") return false
    if (node.type === "VariableDeclarator" || node.type === "AssignmentExpression") return true
    if (node.type === "CallExpression") {
      if (IS_ASSERTION.test(nameOf(node["callee"]))) return true
      if (!nameOf(node["callee"]).startsWith("Math.")) return false
    }
  }
  return false
}

const ROOT = join(import.meta.dirname, "../..")
const kindsIn = (text: string): ReadonlyArray<Kind> => findingsIn(text).map(({ kind }) => kind)

describe("the real clock", () => {
  it("no default test asserts one of its durations, or depends on one", () => {
    const used = new Set<string>()
    const refused = globSync("test/**/*.{ts,js}", { cwd: ROOT }).sort().flatMap((file) => {
      if (file === "test/platform/RealClock.test.ts") return []
      return findingsIn(readFileSync(join(ROOT, file), "utf8")).flatMap(({ kind, line }) => {
        const isAllowed = EXCEPTIONS.some(([of, what]) => of === file && what === kind)
        if (isAllowed) used.add(`${file} ${kind}`)
        return isAllowed ? [] : [`${file}:${line} ${KINDS[kind]}`]
      })
    })
    assert.deepStrictEqual(refused, [])
    assert.deepStrictEqual(
      EXCEPTIONS.filter(([file, kind]) => !used.has(`${file} ${kind}`)),
      [],
      "exceptions that nothing needs"
    )
  })

  it("`npm run test:pace` runs each test that asserts durations there", () => {
    const { scripts } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8")) as {
      readonly scripts: Readonly<Record<string, string>>
    }
    const named = (scripts["test:pace"] ?? "").split(" ")
    const measuring = globSync("test/**/*.test.ts", { cwd: ROOT }).filter((file) =>
      file !== "test/platform/RealClock.test.ts" &&
      /support\/Promptly\.ts"|console\/Nodes\.ts"|\bfreshSend\b/.test(
        readFileSync(join(ROOT, file), "utf8")
      )
    )
    assert.deepStrictEqual(measuring.filter((file) => !named.includes(file)), [])
  })

  it("the rule finds what depends on the real clock", () => {
    const bad: ReadonlyArray<readonly [Kind, string]> = [
      ["clock", "const began = performance.now()"],
      ["clock", "assert.isBelow(performance.now() - began, 100)"],
      ["clock", "const began = process.hrtime.bigint()"],
      ["clock", "assert.isBelow(process.cpuUsage(before).user, 2_000_000)"],
      ["now", "const began = Date.now()"],
      ["now", "assert.isBelow(Math.abs(Date.parse(created_at) - Date.now()), 60_000)"],
      ["now", "assert.isAbove(Date.parse(expires_at), Date.now() + 800_000)"],
      ["now", "while (Date.now() < deadline) more()"],
      ["now", "const began = new Date().getTime()"],
      ["now", "assert.isBelow(ended.getTime() - began, 100)"],
      ["sleep", `import { setTimeout as pause } from "node:timers/promises"\nawait pause(50)`],
      ["sleep", `import { setTimeout } from "node:timers/promises"\nawait setTimeout(waitMs)`],
      ["sleep", "await new Promise((resolve) => setTimeout(resolve, 500))"],
      ["sleep", "setInterval(() => drip(), 20)"],
      ["sleep", `it.live("a", () => Effect.sleep("1 second"))`],
      ["sleep", `const rest = Effect.sleep(10)\nit.live("a", () => rest)`],
      ["statement", "sql`SELECT pg_sleep(0.5)`"],
      ["statement", `connection.executeRaw("SELECT pg_sleep(2)", [])`],
      ["retry", `it("a", { retry: 2 }, () => {})`],
      ["retry", `it.live("a", () => b, { retry: 2 })`],
      ["bound", `await eventually("it", () => true, 5_000)`],
      ["bound", `await within("it", promise, 1_000)`],
      ["bound", "await fetch(url, { signal: AbortSignal.timeout(2_000) })"],
      ["timeout", `it("a", () => {}, 60_000)`],
      ["timeout", `describe("a", { timeout: 60_000 }, () => {})`],
      ["timeout", `layer(modules, { timeout: "60 seconds" })((it) => {})`]
    ]
    for (const [kind, text] of bad) assert.deepStrictEqual(kindsIn(text), [kind], text)
  })

  it("the rule leaves alone what passes at any speed", () => {
    const good = [
      `await eventually("the end", () => ended || undefined)`,
      `await eventually("the end", () => ended || undefined, 2 * LONGEST_WAIT_MS)`,
      `await within("the end", ended)`,
      `await chanceFor("a second post", 300)`,
      `const until = new Date(Date.now() + 3_600_000).toISOString()`,
      "const tag = `tag ${Date.now()}`",
      "const at = new Date(2026, 10, 29).getTime()",
      "assert.strictEqual(at.getTime(), 0)",
      "await fetch(url, { signal: AbortSignal.timeout(60_000) })",
      "const seed = Number(process.env['SEED'] ?? Date.now() % 1_000_000_000)",
      "await new Promise((resolve) => setTimeout(resolve, 0))",
      "setTimeout(() => resume())",
      "socket.setTimeout(waitMs, () => socket.destroy())",
      `it.effect("a", () => Effect.andThen(Effect.sleep("1 second"), b))`,
      `it.live("a", () => b)\nit.effect("c", () => Effect.sleep("1 second"))`,
      "sql`SELECT pg_sleep(60)`",
      "new AgentChatClient({ retry: noRetries })",
      "connect({ host, port, timeout: 1_000 })"
    ]
    for (const text of good) assert.deepStrictEqual(kindsIn(text), [], text)
  })

  it("the rule says the line", () => {
    assert.deepStrictEqual(findingsIn("const a = 1\n\nawait b(performance.now())"), [{ kind: "clock", line: 3 }])
  })
})
