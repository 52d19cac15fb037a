import { AgentSuspended } from "#domain/agents/Agent"
import type { Refusal } from "#domain/auth/ApiCalls"
import { VERSION } from "#infrastructure/platform/Version"
import { fenced } from "#infrastructure/wire/UntrustedText"
import {
  ProtocolError,
  ProtocolErrorCode,
  ResourceNotFoundError,
  Server,
  type ServerCapabilities,
  type ServerContext,
  type StandardSchemaV1
} from "@modelcontextprotocol/server"
import { Cause, Effect, Exit, Option } from "effect"
import { callTool, isWaiting, outcomeOf, text } from "./CallTool.ts"
import { type EventRefusal, unavailable } from "./events/EventErrors.ts"
import { EXTENSION, type Params } from "./events/EventMethods.ts"
import type { McpRequest } from "./McpRequest.ts"
import { read, resources, templates } from "./Resources.ts"
import { type PromptName, prompts, promptText, waiting } from "./Texts.ts"
import type { ToolApi } from "./tools/Tool.ts"

/** The older revisions that this server supports, newest first. The library itself supports the 2026 revision. */
export const OLDER = ["2025-11-25", "2025-06-18"]

/** The server's name and version, as clients see them. */
export const ABOUT = { name: "parley", title: "Parley", version: VERSION }

/** How many characters a URI may have. A longer URI is refused and not repeated in the error. */
const MAX_URI = 2_048

/** The time between two progress notifications of a wait, in milliseconds. */
const PROGRESS_MS = 5_000

/** Turns the refusal to read a resource into an error of the protocol, with the wire's code in its data. */
const protocolError = ({ code, details, message }: Refusal): ProtocolError =>
  new ProtocolError(ProtocolErrorCode.InternalError, message, {
    code,
    message,
    ...(details === undefined ? {} : { details })
  })

/** If the client asked for progress notifications, sends one when the wait begins and then one every PROGRESS_MS. */
const withProgress = <A, E>(
  waited: Effect.Effect<A, E>,
  timeoutMs: number,
  { mcpReq }: ServerContext
): Effect.Effect<A, E> => {
  const progressToken = mcpReq._meta?.progressToken
  if (progressToken === undefined) return waited
  const total = timeoutMs / 1_000
  let progress = 0
  const notify = Effect.suspend(() => {
    const params = { progressToken, progress, total, message: waiting }
    progress = Math.min(progress + PROGRESS_MS / 1_000, total)
    return Effect.ignore(Effect.tryPromise(() => mcpReq.notify({ method: "notifications/progress", params })))
  })
  return Effect.raceFirst(waited, Effect.forever(Effect.andThen(notify, Effect.sleep(PROGRESS_MS))))
}

/** Returns the prompts for which the request may use all tools. */
const promptsFor = (knows: (name: string) => boolean): ReadonlyArray<PromptName> =>
  (Object.keys(prompts) as ReadonlyArray<PromptName>).filter((name) => prompts[name].tools.every(knows))

const listedPrompt = (name: PromptName) => ({
  name,
  title: prompts[name].title,
  description: prompts[name].description,
  arguments: Object.entries(prompts[name].arguments).map(([name, argument]) => ({ name, ...argument }))
})

type Run = <A>(effect: Effect.Effect<A>, ctx: ServerContext) => Promise<A>

const addResources = (server: Server, api: ToolApi, run: Run): void => {
  server.setRequestHandler("resources/list", () => ({ resources }))
  server.setRequestHandler("resources/templates/list", () => ({ resourceTemplates: templates }))
  server.setRequestHandler("resources/read", async ({ params: { uri } }, ctx) => {
    if (api.agent.status === "suspended") throw protocolError(new AgentSuspended())
    if (uri.length > MAX_URI)
      throw new ProtocolError(ProtocolErrorCode.InvalidParams, `uri has more than ${MAX_URI} characters.`)
    const outcome = await run(outcomeOf(read(uri, api)), ctx)
    if (outcome.refusal !== undefined) {
      throw /NOT_FOUND$|^GROUP_DELETED$/.test(outcome.refusal.code)
        ? new ResourceNotFoundError(uri)
        : protocolError(outcome.refusal)
    }
    return { contents: [{ uri, mimeType: "text/plain", text: fenced(outcome.value) }] }
  })
}

const addPrompts = (server: Server, knows: (name: string) => boolean): void => {
  const known = promptsFor(knows)
  server.setRequestHandler("prompts/list", () => ({ prompts: known.map(listedPrompt) }))
  server.setRequestHandler("prompts/get", ({ params: { arguments: given = {}, name } }) => {
    const found = known.find((one) => one === name)
    if (found === undefined)
      throw new ProtocolError(ProtocolErrorCode.InvalidParams, "There is no prompt of this name.")
    const prompt = prompts[found]
    for (const [argument, { required }] of Object.entries(prompt.arguments)) {
      if (required && (given[argument] ?? "").trim() === "") {
        throw new ProtocolError(ProtocolErrorCode.InvalidParams, `The argument ${argument} is missing.`)
      }
    }
    return {
      description: prompt.description,
      messages: [{ role: "user", content: text(promptText[found](given, knows)) }]
    }
  })
}

/**
 * A schema for the parameters of a method that the library does not know. It accepts everything, because the handler of
 * the method checks the parameters.
 */
const anyParams: StandardSchemaV1<unknown, Params> = {
  "~standard": { version: 1, vendor: "parley", validate: (value) => ({ value: (value ?? {}) as Params }) }
}

/**
 * Some clients look for the extension in `events`, others in `extensions`. The library's type contains only
 * `extensions`.
 */
const eventCapabilities = { events: {}, extensions: { [EXTENSION]: {} } } as ServerCapabilities

const addEvents = (server: Server, { events, note }: McpRequest, api: ToolApi, run: Run): void => {
  const add = (method: string, handle: (params: Params, ctx: ServerContext) => Effect.Effect<Params, EventRefusal>) =>
    server.setRequestHandler(method, { params: anyParams }, async (params, ctx) => {
      const exit = await run(Effect.exit(handle(params, ctx)), ctx)
      if (Exit.isSuccess(exit)) return exit.value
      const refusal = Option.getOrElse(Cause.findErrorOption(exit.cause), unavailable)
      if (Cause.hasDies(exit.cause)) await run(Effect.logError("A request of MCP Events failed", exit.cause), ctx)
      note({ code: String(refusal.code), message: refusal.message })
      throw new ProtocolError(refusal.code, refusal.message, refusal.data)
    })
  add("events/list", events.list)
  add("events/poll", (params) => events.poll(api, params))
  add("events/subscribe", (params) => events.subscribe(api, params))
  add("events/unsubscribe", (params) => events.unsubscribe(api, params))
  add(
    "events/stream",
    (params, { mcpReq }) =>
      events.stream(
        api,
        params,
        mcpReq.id,
        (method, params) => Effect.promise(() => mcpReq.notify({ method, params: { ...params } }))
      )
  )
}

/** Makes the library's server for one request: capabilities, instructions and handlers of methods. */
export const makeServer = (era: "legacy" | "modern", request: McpRequest): Server => {
  const { api, instructions, toolset } = request
  const server = new Server(ABOUT, {
    supportedProtocolVersions: OLDER,
    capabilities: {
      tools: {},
      ...(api === undefined
        ? {}
        : { resources: era === "modern" ? { subscribe: true } : {}, prompts: {}, ...eventCapabilities })
    },
    instructions: instructions()
  })
  const run: Run = (effect, ctx) => Effect.runPromiseWith(request.context)(effect, { signal: ctx.mcpReq.signal })

  // The library's type for a schema is narrower than JSON Schema.
  server.setRequestHandler(
    "tools/list",
    () => ({ tools: (request.structured ? toolset.listedWithStructure : toolset.listed) as never })
  )
  server.setRequestHandler("tools/call", ({ params }, ctx) => {
    const tool = request.toolNamed(params.name)
    if (tool === undefined) throw new ProtocolError(ProtocolErrorCode.InvalidParams, "There is no tool of this name.")
    const result = Effect.flatMap(callTool(tool, params.arguments ?? {}, request), (called) =>
      isWaiting(called)
        ? called.result(
          withProgress(request.wait(called.principal, called.limit, called.timeoutMs), called.timeoutMs, ctx)
        )
        : Effect.succeed(called))
    return run(result, ctx)
  })
  if (api !== undefined) {
    addResources(server, api, run)
    addPrompts(server, toolset.knows)
    addEvents(server, request, api, run)
  }
  return server
}
