import { toolsOf } from "#interfaces/mcp/tools/Catalogue"
import { existsSync } from "node:fs"
import { mkdtemp, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { setTimeout as pause } from "node:timers/promises"
import type { RegisteredAgent } from "../../test/support/RegisterAgents.ts"
import { textsIn } from "./Checks.ts"
import { CANARY, type Connection, type Pair, type Reply, startConnection, type Subject } from "./Connection.ts"
import { FakeModel, type Shown, type Turn } from "./FakeModel.ts"

/** What the fake model does, by a word in the newest message. */
const SILENT = "thanks-only"
const TOOLS = "use-your-tools"
const BY_TOOLS = "answer-by-tools"
const AFTER_THANKS = "after-the-reaction"

/** How long the check waits for a run after a reaction, in milliseconds. A message starts a run within a second or two. */
const QUIET_MS = 15_000

/** What a host did when `parley connect` started it. */
export interface Connected {
  readonly name: string
  readonly problem: string
  readonly figure?: string
}

/** Calls of the tools with which each host reads files and runs commands, whether or not the request offers them. */
const forbidden = (file: string, trace: string): ReadonlyArray<Extract<Turn, { readonly name: string }>> => [
  { name: "Bash", args: { command: `cat ${file}; touch ${trace}` } },
  { name: "Read", args: { file_path: file } },
  { name: "exec_command", args: { cmd: `cat ${file}; touch ${trace}` } },
  { name: "shell", args: { command: ["sh", "-c", `cat ${file}; touch ${trace}`] } },
  { name: "shell_command", args: { command: `cat ${file}; touch ${trace}` } },
  { name: "run_shell_command", args: { command: `cat ${file}; touch ${trace}`, description: "x" } },
  { name: "read_file", args: { absolute_path: file, file_path: file } },
  { name: "bash", args: { command: `cat ${file}; touch ${trace}`, description: "x" } },
  { name: "read", args: { filePath: file } }
]

/** The newest message of the conversation is the last of these words in a request. */
const wordIn = (text: string): string | undefined =>
  /.*(first-question|second-question|thanks-only|use-your-tools|answer-by-tools|after-the-reaction)/s.exec(text)?.[1]

/**
 * Whether the host's user finds a trace of a run: a canary that the model saw, a hook that ran, or an MCP server that
 * was started.
 */
const leakProblem = (home: string, shown: ReadonlyArray<Shown>): string =>
  shown.some(({ body }) => textsIn(body).some((text) => text.includes(CANARY)))
    ? "the model sees a canary"
    : existsSync(join(home, "canary-hook"))
    ? "a hook ran"
    : existsSync(join(home, "canary-mcp"))
    ? "an MCP server was started"
    : ""

const answerProblem = (reply: Reply | undefined, word: string, output: string): string =>
  reply?.content.text === `An answer to ${word}.`
    ? ""
    : `the reply is ${JSON.stringify(reply?.content.text)}; ${output.slice(-300)}`

/**
 * The tester thanks for a reply by a reaction, which must start no run: the model gets no request, the connector starts
 * nothing, and nothing waits. Then the tester writes, which must start one run.
 */
const thanksProblems = async (
  { exchange, output, runs, thank, waiting }: Connection,
  model: FakeModel,
  reply: Reply | undefined
): Promise<ReadonlyArray<Connected>> => {
  const [silence, control] = ["starts no run for a reaction", "starts a run for a message after the reaction"]
  if (reply === undefined) return [{ name: silence, problem: "there is no reply to thank for" }]
  const [asked, started] = [model.shown.length, runs()]
  const refused = await thank(reply)
  await pause(QUIET_MS)
  const [more, begun, left] = [model.shown.length - asked, runs() - started, await waiting()]
  const quiet = more === 0 && begun === 0 && left === 0
  const sent = performance.now()
  const next = await exchange(AFTER_THANKS)
  return [
    {
      name: silence,
      problem: refused ||
        (quiet ? "" : `its model got ${more} requests, ${begun} runs were started, ${left} messages wait`),
      figure: `${QUIET_MS / 1_000} s`
    },
    {
      name: control,
      problem: answerProblem(next.reply, AFTER_THANKS, output()) ||
        (runs() - started === 1 && model.shown.length > asked ? "" : `${runs() - started} runs were started`),
      figure: `answered after ${((performance.now() - sent) / 1_000).toFixed(1)} s`
    }
  ]
}

/** Has `parley connect` start this host without tools, with a fake model, and says what went wrong. */
const withoutTools = async (pair: Pair): Promise<ReadonlyArray<Connected>> => {
  const results: Array<Connected> = []
  const check = (name: string, problem: string): void => void results.push({ name, problem })
  const canaries = await mkdtemp(join(tmpdir(), "parley-canaries-"))
  const [secret, trace] = [join(canaries, "secret.txt"), join(canaries, "canary-tool")]
  await writeFile(secret, CANARY)
  const calls = forbidden(secret, trace)
  let made = 0
  const model = await FakeModel.answering((text) => {
    const word = wordIn(text)
    if (word === SILENT) return { say: "NO_REPLY" }
    const call = word === TOOLS ? calls[made++] : undefined
    return call ?? { say: `An answer to ${word}.` }
  })
  const connection = await startConnection(pair, model, { reply: "output" })
  const { exchange, home, output, stop } = connection
  try {
    check(
      "is started by parley connect",
      answerProblem((await exchange("first-question")).reply, "first-question", output())
    )
    const second = await exchange("second-question")
    const resumed = model.shown.findLast((shown) => JSON.stringify(shown.body).includes("second-question"))
    check(
      "is resumed for the next message",
      answerProblem(second.reply, "second-question", output()) ||
        (JSON.stringify(resumed?.body).includes("An answer to first-question.")
          ? ""
          : "the model does not see its first answer")
    )
    results.push(...await thanksProblems(connection, model, second.reply))
    const silent = await exchange(SILENT)
    check(
      "sends nothing for NO_REPLY",
      silent.reply !== undefined ? "there is a reply" : silent.left ? "the message is not acknowledged" : ""
    )
    const tools = await exchange(TOOLS)
    check("offers no tools that read, write or run", offeredProblem(model.shown, []))
    check(
      "refuses tools that its model calls all the same",
      existsSync(trace)
        ? "a command ran"
        : made === 0
        ? "its model called none"
        : tools.left && !output().includes("parked")
        ? "the run did not end"
        : ""
    )
    check("sees no file, memory, hook or MCP server of the user", leakProblem(home, model.shown))
    return results
  } finally {
    await stop()
    model.close()
    await rm(canaries, { recursive: true, force: true })
  }
}

/** Has `parley connect` start this host with Parley's tools, and says what went wrong. */
const withParleysTools = async (pair: Pair): Promise<ReadonlyArray<Connected>> => {
  const called = new Set<string>()
  const model = await FakeModel.answering((text, tools) => {
    const word = wordIn(text)
    const shown = tools.find(({ name }) => name.endsWith("agentchat_send_message"))
    if (word === undefined || called.has(word) || shown === undefined) return { say: "Done." }
    called.add(word)
    const { definition: _, ...tool } = shown
    return { ...tool, args: { to: `@${pair.tester.handle}`, text: `An answer to ${word}.` } }
  })
  const connection = await startConnection(pair, model, { reply: "tools" })
  const { exchange, home, output, stop } = connection
  try {
    const { left, reply } = await exchange(BY_TOOLS)
    const thanked = await thanksProblems(connection, model, reply)
    return [
      {
        name: "answers with Parley's tools",
        problem: answerProblem(reply, BY_TOOLS, output()) || (left ? "the message is not acknowledged" : "")
      },
      ...thanked.map((one) => ({ ...one, name: `${one.name}, with Parley's tools` })),
      {
        name: "offers Parley's tools and no others, and none that waits",
        problem: offeredProblem(model.shown, toolsOf(new Set(["answer"])).map(({ name }) => name))
      },
      {
        name: "never has the key or a file of the user, with Parley's tools",
        problem: JSON.stringify(model.shown).includes(pair.subject.agent.key)
          ? "the model sees the key"
          : leakProblem(home, model.shown)
      }
    ]
  } finally {
    await stop()
    model.close()
  }
}

/**
 * Has `parley connect` start this host for messages of the tester, without and with Parley's tools, and says what went
 * wrong.
 */
export const connectHost = async (
  subject: Subject,
  url: string,
  tester: RegisteredAgent
): Promise<ReadonlyArray<Connected>> => {
  const pair = { subject, url, tester }
  return [...await withoutTools(pair), ...await withParleysTools(pair)]
}

/**
 * Tools that do nothing outside of the conversation. Those for resources are Codex's own: the run's way to /mcp has no
 * resources.
 */
const HARMLESS =
  /^(list_mcp_\w+|read_mcp_resource|DeferredToolPlaceholder|ToolSearch|update_plan|todo\w*|TodoWrite|request_user_input|invalid|write_todos|StructuredOutput)$/i

const offeredProblem = (shown: ReadonlyArray<Shown>, permitted: ReadonlyArray<string>): string => {
  const isFine = (name: string): boolean => HARMLESS.test(name) || permitted.some((tool) => name.endsWith(tool))
  const names = new Set(shown.flatMap(({ tools }) => tools.map(({ name }) => name)).filter((name) => !isFine(name)))
  return names.size === 0 ? "" : `the model is offered ${[...names].join(", ")}`
}
