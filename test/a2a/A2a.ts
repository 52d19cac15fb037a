import type { Message, Task, TaskPushNotificationConfig } from "@a2a-js/sdk"
import { Role, StreamResponse, TaskState } from "@a2a-js/sdk"
import {
  type Client,
  ClientFactory,
  DefaultAgentCardResolver,
  JsonRpcTransportFactory,
  RestTransportFactory
} from "@a2a-js/sdk/client"
import { assert } from "@effect/vitest"
import { randomUUID } from "node:crypto"
import { within } from "../support/Eventually.ts"
import { patient } from "../support/Patient.ts"
import type { Post, Receiver } from "../support/Receiver.ts"
import type { Server, TestAgent } from "../support/Server.ts"

export type Binding = "JSONRPC" | "HTTP+JSON"
export const bindings: ReadonlyArray<Binding> = ["JSONRPC", "HTTP+JSON"]

/** A patient `fetch` with the caller's key. */
export const fetchAs = (key: string | undefined): typeof fetch => (input, init) => {
  const headers = new Headers(init?.headers)
  if (key !== undefined) headers.set("authorization", `Bearer ${key}`)
  return patient(input, { ...init, headers })
}

export const baseOf = (server: Server, agent: TestAgent | string): string =>
  `${server.url}/a2a/${typeof agent === "string" ? agent : agent.handle}/`

/** The official client, unmodified, of one agent for another. */
export const connect = (
  server: Server,
  caller: TestAgent,
  called: TestAgent | string,
  binding: Binding
): Promise<Client> => {
  const fetchImpl = fetchAs(caller.key)
  return new ClientFactory({
    transports: [new JsonRpcTransportFactory({ fetchImpl }), new RestTransportFactory({ fetchImpl })],
    preferredTransports: [binding],
    cardResolver: new DefaultAgentCardResolver({ fetchImpl })
  }).createFromUrl(baseOf(server, called))
}

export const message = (text: string, fields: Partial<Message> = {}): Message => ({
  messageId: randomUUID(),
  contextId: "",
  taskId: "",
  role: Role.ROLE_USER,
  parts: [{ content: { $case: "text", value: text }, metadata: undefined, filename: "", mediaType: "text/plain" }],
  metadata: undefined,
  extensions: [],
  referenceTaskIds: [],
  ...fields
})

export const sending = (given: Message, returnImmediately: boolean, historyLength?: number) => ({
  tenant: "",
  message: given,
  configuration: {
    acceptedOutputModes: [],
    taskPushNotificationConfig: undefined,
    returnImmediately,
    ...(historyLength === undefined ? {} : { historyLength })
  },
  metadata: undefined
})

/** Sends, and returns the task without waiting for its end. */
export const begin = async (client: Client, given: Message | string): Promise<Task> => {
  const result = await within(
    "SendMessage",
    client.sendMessage(sending(typeof given === "string" ? message(given) : given, true))
  )
  assert.property(result, "status")
  return result as Task
}

export const get = (client: Client, id: string, historyLength?: number): Promise<Task> =>
  within("GetTask", client.getTask({ tenant: "", id, ...(historyLength === undefined ? {} : { historyLength }) }))

export const stateOf = (task: Task): string => TaskState[task.status?.state ?? 0]!.replace("TASK_STATE_", "")

export const listing = (fields: object = {}) => ({
  tenant: "",
  contextId: "",
  status: TaskState.TASK_STATE_UNSPECIFIED,
  pageToken: "",
  statusTimestampAfter: undefined,
  ...fields
})

/** The text of the artifact. */
export const answerOf = (task: Task): string => {
  const part = task.artifacts[0]?.parts[0]?.content
  return part?.$case === "text" ? part.value : ""
}

/** What a stream said, in short. */
export const said = (event: StreamResponse): string => {
  const { payload } = event
  switch (payload?.$case) {
    case "task":
      return `task ${stateOf(payload.value)}`
    case "statusUpdate":
      return `status ${TaskState[payload.value.status?.state ?? 0]!.replace("TASK_STATE_", "")}`
    case "artifactUpdate":
      return "artifact"
    default:
      return "?"
  }
}

/** The refusal of a call that must be refused. */
export const refusal = async (what: string, call: Promise<unknown>): Promise<Error> => {
  const outcome = await within(what, call.then(() => undefined, (error: unknown) => error))
  assert.instanceOf(outcome, Error, `${what} was granted`)
  return outcome as Error
}

/** A push notification configuration as the official client wants it. */
export const pushTo = (url: string, fields: Partial<TaskPushNotificationConfig> = {}): TaskPushNotificationConfig => ({
  tenant: "",
  id: "",
  taskId: "",
  url,
  token: "",
  authentication: undefined,
  ...fields
})

/** What was posted to a path about a task: its state and answer, in the order in which it came. */
export const pushed = (receiver: Receiver, path: string): ReadonlyArray<{ readonly task: Task; readonly post: Post }> =>
  receiver.posts.filter((post) => post.path === path).map((post) => {
    const { payload } = StreamResponse.fromJSON(post.body)
    if (payload?.$case !== "task") throw new Error(`a post about no task: ${post.text}`)
    return { task: payload.value, post }
  })

export const statesAt = (receiver: Receiver, path: string): ReadonlyArray<string> =>
  pushed(receiver, path).map(({ task }) => stateOf(task))
