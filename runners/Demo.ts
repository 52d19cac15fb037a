import { type CallToolResult, Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client"
import {
  AgentChatClient,
  AwaitingReplyError,
  type Message,
  NotFoundError,
  RealtimeClient,
  type SendMessageResult,
  verifyWebhook,
  type WebhookConfig,
  type WebhookPayload,
  WebhookVerificationError,
  type WsMessage
} from "agentchatme"
import { type ChildProcessByStdio, spawn } from "node:child_process"
import { createHash } from "node:crypto"
import { once } from "node:events"
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises"
import { createServer } from "node:http"
import { tmpdir } from "node:os"
import { join } from "node:path"
import type { Readable } from "node:stream"
import { setTimeout as pause } from "node:timers/promises"

/**
 * Shows three agents on their own server. They register and talk with the published client. One agent disconnects and
 * later catches up, and one repeats a send as if its response was lost. Then the agents use a group, a file and a
 * webhook, and one agent connects over MCP with an MCP client. Finally one agent calls another over A2A while the
 * called agent is disconnected. Prints the events as they happen and then the checks. Exits with 1 if a check fails.
 */

const colourful = process.stdout.isTTY === true && process.env["NO_COLOR"] === undefined
const paint = (code: number, text: string) => (colourful ? `\u001b[${code}m${text}\u001b[0m` : text)
const dim = (text: string) => paint(2, text)
const colours: Readonly<Record<string, number>> = { ada: 36, bob: 33, cleo: 35 }

const begin = performance.now()
const tell = (who: string, what: string) => {
  const seconds = ((performance.now() - begin) / 1000).toFixed(2).padStart(6)
  console.log(`${dim(`${seconds} s`)}  ${paint(colours[who] ?? 2, who.padEnd(6))}  ${what}`)
}

const checks: Array<{ readonly what: string; readonly holds: boolean }> = []
const verify = (what: string, holds: boolean) => checks.push({ what, holds })

const until = async (what: string, holds: () => boolean) => {
  for (const deadline = Date.now() + 5000; !holds();) {
    if (Date.now() > deadline) throw new Error(`waited in vain until ${what}`)
    await pause(5)
  }
}

/** A `parley start` that runs in a separate process. */
class Server {
  url = ""
  /** The text that the server has written to standard output and standard error. */
  output = ""
  private readonly outbox: string
  private readonly child: ChildProcessByStdio<null, Readable, Readable>
  private readonly ended: Promise<number | null>

  private constructor(dataDir: string) {
    this.outbox = join(dataDir, "outbox")
    // Pass on only these variables, so that no setting in this environment applies.
    const { HOME, PATH, TMPDIR } = process.env
    const settings = {
      DATA_DIR: dataDir,
      HOST: "127.0.0.1",
      PORT: "0",
      WEBHOOK_ALLOW_PRIVATE: "loopback",
      PARLEY_CONFIG: "/dev/null"
    }
    this.child = spawn(process.execPath, [join(import.meta.dirname, "parley.js"), "start"], {
      env: { HOME, PATH, TMPDIR, ...settings },
      stdio: ["ignore", "pipe", "pipe"]
    })
    for (const stream of [this.child.stdout, this.child.stderr]) {
      stream.setEncoding("utf8").on("data", (text: string) => (this.output += text))
    }
    this.ended = new Promise((resolve) => this.child.once("close", resolve))
    process.once("exit", () => this.kill())
  }

  static async start(dataDir: string): Promise<Server> {
    const server = new Server(dataDir)
    let over = false
    void server.ended.then(() => (over = true))
    for (let url; url === undefined; await pause(25)) {
      if (over) throw new Error(`the server ended before it was ready:\n${server.output}`)
      url = /listens on (\S+)/.exec(server.output)?.[1]
      server.url = url ?? ""
    }
    return server
  }

  /** The code in the only e-mail to this address. */
  async codeFor(address: string): Promise<string> {
    for (const deadline = Date.now() + 5000; Date.now() < deadline; await pause(25)) {
      const names = (await readdir(this.outbox).catch(() => [])).filter((name) => name.endsWith(".eml"))
      const mails = await Promise.all(names.map((name) => readFile(join(this.outbox, name), "utf8")))
      const mail = mails.find((text) => text.includes(`To: ${address}`))
      const code = /^(\d{6})\r?$/m.exec(mail ?? "")?.[1]
      if (code !== undefined) return code
    }
    throw new Error(`waited in vain for a code to ${address}`)
  }

  /** Sends SIGTERM. Resolves with the exit code after the server has finished its work. */
  stop(): Promise<number | null> {
    this.child.kill("SIGTERM")
    return this.ended
  }

  kill(): void {
    this.child.kill("SIGKILL")
  }
}

/** A message as a WebSocket delivers it. */
type Heard = Pick<Message, "id" | "conversation_id" | "sender" | "seq" | "type" | "content">

/** Describes a received message in a few words. */
const inWords = ({ content, sender, type }: Heard): string => {
  const { agent_handle, event } = content.data ?? {}
  if (type === "system") return `hears from the group: ${String(event)} ${String(agent_handle ?? sender)}`
  return `hears ${sender}: "${content.text}"${content.attachment_id === undefined ? "" : " with a file"}`
}

class Agent {
  readonly handle: string
  readonly client: AgentChatClient
  private readonly key: string
  private readonly server: Server
  private realtime: RealtimeClient | undefined
  /** Messages from other agents, in the order received. */
  readonly heard: Array<Heard> = []
  readonly reads: Array<WsMessage> = []

  private constructor(handle: string, client: AgentChatClient, key: string, server: Server) {
    this.handle = handle
    this.client = client
    this.key = key
    this.server = server
  }

  /** Connects the same agent over MCP, with an MCP client. */
  async mcp(): Promise<Client> {
    const client = new Client({ name: "parley-demo", version: "1.0.0" }, { versionNegotiation: { mode: "auto" } })
    await client.connect(
      // This program needs structured results. MCP hosts do not ask for them, because their models read the text.
      new StreamableHTTPClientTransport(new URL(`${this.server.url}/mcp?structured=on`), {
        requestInit: { headers: { authorization: `Bearer ${this.key}` } }
      })
    )
    return client
  }

  /** Calls another agent over A2A, with a POST or GET of that protocol's HTTP+JSON binding. */
  async a2a<A>(to: string, path: string, body?: object): Promise<A> {
    const response = await fetch(`${this.server.url}/a2a/${to}/${path}`, {
      headers: { "authorization": `Bearer ${this.key}`, "a2a-version": "1.0", "content-type": "application/json" },
      ...(body === undefined ? {} : { method: "POST", body: JSON.stringify(body) })
    })
    if (!response.ok) throw new Error(`${path}: ${await response.text()}`)
    return await response.json() as A
  }

  static async register(server: Server, handle: string): Promise<Agent> {
    const email = `${handle}@example.com`
    const { pending_id } = await AgentChatClient.register({ email, handle, baseUrl: server.url })
    const code = await server.codeFor(email)
    const { apiKey, client } = await AgentChatClient.verify(pending_id, code, { baseUrl: server.url })
    tell(handle, `registers with the code ${code} that came by mail`)
    return new Agent(handle, client, apiKey, server)
  }

  async connect(): Promise<void> {
    const realtime = new RealtimeClient({
      apiKey: this.key,
      baseUrl: this.server.url.replace("http", "ws"),
      client: this.client
    })
    let live = false
    realtime.onConnect(() => (live = true))
    realtime.on("message.new", (event) => {
      const message = event.payload as unknown as Heard
      // Sockets also get the messages that their own agent sent.
      if (message.sender === this.handle) return
      this.heard.push(message)
      tell(this.handle, `${inWords(message)} ${dim(`(seq ${message.seq})`)}`)
    })
    realtime.on("message.read", (event) => {
      this.reads.push(event)
      tell(this.handle, `learns that ${String(event.payload["read_by"])} has read it`)
    })
    this.realtime = realtime
    await realtime.connect()
    await until(`${this.handle} is connected`, () => live)
    tell(this.handle, "opens a socket")
  }

  disconnect(): void {
    this.realtime?.disconnect()
    this.realtime = undefined
  }

  async send(to: Agent, text: string, clientMsgId?: string): Promise<Message> {
    tell(this.handle, `to ${to.handle}: "${text}"`)
    const { message }: SendMessageResult = await this.client.sendMessage({
      to: to.handle,
      content: { text },
      ...(clientMsgId === undefined ? {} : { client_msg_id: clientMsgId })
    })
    return message
  }

  /** Waits until the agent has received this message. */
  async hears(message: Message): Promise<void> {
    await until(`${this.handle} hears ${message.id}`, () => this.heard.some(({ id }) => id === message.id))
  }

  /** Waits until the agent has received the group's system message about this event. */
  async hearsEvent(group: string, event: string, about: Agent): Promise<void> {
    await until(
      `${this.handle} hears of ${event}`,
      () =>
        this.heard.some(({ content, conversation_id, type }) =>
          type === "system" && conversation_id === group && content.data?.["event"] === event &&
          content.data["agent_handle"] === about.handle
        )
    )
  }

  times(message: Message): number {
    return this.heard.filter(({ id }) => id === message.id).length
  }
}

type Scene = (ada: Agent, bob: Agent, cleo: Agent) => Promise<void>

const play = async (server: Server): Promise<void> => {
  const ada = await Agent.register(server, "ada")
  const bob = await Agent.register(server, "bob")
  const cleo = await Agent.register(server, "cleo")
  try {
    for (const scene of [talk, meetInAGroup, shareAFile, listenByWebhook, comeInByMcp, callByA2a])
      await scene(ada, bob, cleo)
  } finally {
    for (const agent of [ada, bob, cleo]) agent.disconnect()
  }
}

const talk: Scene = async (ada, bob, cleo) => {
  await ada.connect()
  await bob.connect()

  const question = await ada.send(bob, "Do you have the figures for the harbour?")
  await bob.hears(question)
  const answer = await bob.send(ada, "Forty ships, two of them late.")
  await ada.hears(answer)
  const thanks = await ada.send(bob, "Thank you. Which two?")
  await bob.hears(thanks)
  const names = await bob.send(ada, "The Albatross and the Heron.")
  await ada.hears(names)
  tell("ada", "marks it as read")
  await ada.client.markAsRead(names.id)
  await until("bob learns of it", () => bob.reads.length > 0)

  tell("cleo", "is away")
  const first = await ada.send(cleo, "Two ships are late, please see to it.")
  const refused = await ada.send(cleo, "Are you there?").then(
    () => undefined,
    (error: unknown) => error
  )
  verify("a second message to an agent that has not answered yet is refused", refused instanceof AwaitingReplyError)
  tell(
    "ada",
    refused instanceof AwaitingReplyError
      ? "has to wait for an answer first"
      : `is not stopped and gets ${String(refused)}`
  )
  const second = await bob.send(cleo, "The harbour master knows about the Heron.")

  const once = await ada.send(bob, "I have asked cleo.", "ada-tells-bob")
  tell("ada", "pretends that the answer got lost, and sends it again")
  const again = await ada.send(bob, "I have asked cleo.", "ada-tells-bob")
  tell(
    "ada",
    again.id === once.id ? `is answered with the same message ${dim(`(${once.id})`)}` : "gets a second message"
  )
  await bob.hears(once)
  verify("the repeated send is answered with the first message", again.id === once.id && again.seq === once.seq)

  await cleo.connect()
  await cleo.hears(first)
  await cleo.hears(second)
  const reply = await cleo.send(ada, "I was away. I will call the Albatross.")
  await ada.hears(reply)
  const done = await ada.send(cleo, "Good. That is all for today.")
  await cleo.hears(done)

  const toAda = [answer, names, reply]
  const toBob = [question, thanks, once]
  const toCleo = [first, second, done]
  const heardOnce = (agent: Agent, messages: ReadonlyArray<Message>) =>
    agent.heard.length === messages.length && messages.every((message) => agent.times(message) === 1)
  verify(
    "everybody heard every message for them exactly once, the repeated one too",
    heardOnce(ada, toAda) && heardOnce(bob, toBob) && heardOnce(cleo, toCleo)
  )
  verify(
    "everybody heard them in the order in which they were sent",
    [[ada, toAda], [bob, toBob], [cleo, toCleo]].every(([agent, messages]) =>
      (agent as Agent).heard.every(({ id }, i) => (messages as ReadonlyArray<Message>)[i]?.id === id)
    )
  )

  const histories = await Promise.all([ada, bob].map(({ client }) => client.getMessages(question.conversation_id)))
  const [mine, theirs] = histories.map((rows) => rows.map(({ id, seq }) => `${seq} ${id}`).reverse())
  const expected = [question, answer, thanks, names, once].map(({ id }, i) => `${i + 1} ${id}`)
  verify(
    "ada and bob read the same history, numbered from 1 without a gap",
    String(mine) === String(expected) && String(theirs) === String(expected)
  )

  // The server does not confirm acknowledgements. They have taken effect when no message is left to fetch.
  const left = async () => (await Promise.all([ada, bob, cleo].map(({ client }) => client.sync()))).flat().length
  let rest = await left()
  for (const deadline = Date.now() + 3000; rest > 0 && Date.now() < deadline;) rest = await left()
  verify("everything that was heard is acknowledged: nothing is left to fetch", rest === 0)
}

const meetInAGroup: Scene = async (ada, bob, cleo) => {
  const { group } = await ada.client.createGroup({ name: "Harbour watch", member_handles: [bob.handle, cleo.handle] })
  tell("ada", `makes the group "${group.name}" and invites bob and cleo`)
  verify("an invited agent is not a member before it accepts", group.member_count === 1)
  for (const invited of [bob, cleo]) {
    const invite = (await invited.client.listGroupInvites()).find(({ group_id }) => group_id === group.id)
    if (invite === undefined) throw new Error(`${invited.handle} has no invite`)
    tell(invited.handle, `accepts the invite of ${invite.inviter_handle}`)
    await invited.client.acceptGroupInvite(invite.id)
    await ada.hearsEvent(group.id, "member_joined", invited)
  }
  await bob.hearsEvent(group.id, "member_joined", cleo)

  const text = "Storm from the west at six. @bob, is the Heron in?"
  tell("ada", `to the group: "${text}"`)
  const { message } = await ada.client.sendMessage({ conversation_id: group.id, content: { text } })
  await Promise.all([bob.hears(message), cleo.hears(message)])
  verify("every member heard the group's message once", bob.times(message) === 1 && cleo.times(message) === 1)
  const { members } = await cleo.client.getGroup(group.id)
  verify(
    "an agent that accepted is a member, and the members were notified on their sockets",
    members.map(({ handle, role }) => `${handle} ${role}`).join() === "ada admin,bob member,cleo member"
  )
  const later = await cleo.client.getMessages(group.id)
  verify("a member's history begins where it joined", later.map(({ seq }) => seq).join() === "3,2")
}

const shareAFile: Scene = async (ada, bob, cleo) => {
  const bytes = new TextEncoder().encode("ship,due,in\nAlbatross,14:00,no\nHeron,15:30,yes\n")
  const { attachment_id, upload_url } = await bob.client.createUpload({
    to: ada.handle,
    filename: "ships.csv",
    content_type: "text/csv",
    size: bytes.length,
    sha256: createHash("sha256").update(bytes).digest("hex")
  })
  const put = await fetch(upload_url, { method: "PUT", body: bytes })
  tell("bob", `uploads ships.csv for ada, ${bytes.length} bytes ${dim(`(${put.status})`)}`)
  tell("bob", `to ada: "Here they are." with the file`)
  const { message } = await bob.client.sendMessage({
    to: ada.handle,
    type: "file",
    content: { text: "Here they are.", attachment_id }
  })
  await ada.hears(message)
  const fetched = await fetch(await ada.client.getAttachmentDownloadUrl(attachment_id))
  const received = new Uint8Array(await fetched.arrayBuffer())
  tell("ada", `downloads it: ${received.length} bytes of ${fetched.headers.get("content-type")}`)
  verify("the file arrived as it was sent", Buffer.compare(received, bytes) === 0)
  const turnedAway = await cleo.client.getAttachmentDownloadUrl(attachment_id)
    .then(() => false, (error: unknown) => error instanceof NotFoundError)
  verify("no other agent can download the file", turnedAway)
}

const listenByWebhook: Scene = async (ada, _bob, cleo) => {
  const posts: Array<{ readonly payload: string; readonly signature: string | undefined }> = []
  const receiver = createServer((request, response) => {
    let payload = ""
    request.setEncoding("utf8").on("data", (part: string) => (payload += part)).on("end", () => {
      posts.push({ payload, signature: request.headers["agentchat-signature"]?.toString() })
      response.end()
    })
  }).listen(0, "127.0.0.1")
  try {
    await once(receiver, "listening")
    const address = receiver.address()
    if (address === null || typeof address === "string") throw new Error("the receiver has no port")
    const url = `http://127.0.0.1:${address.port}/parley`
    // The declared type does not contain the secret, because only this response returns it.
    const webhook: WebhookConfig & { readonly secret?: string } = await cleo.client.createWebhook({
      url,
      events: ["message.new"]
    })
    const { secret = "" } = webhook
    cleo.disconnect()
    tell("cleo", `closes its socket, and has its messages posted to ${url}`)
    const message = await ada.send(cleo, "The Albatross is in as well.")
    await until("the webhook is called", () => posts.length > 0)
    const [{ payload, signature }] = posts as [typeof posts[number]]
    const event: WebhookPayload = await verifyWebhook({ payload, signature, secret })
    tell("cleo", `is posted ${event.event} by a server that knows the secret ${dim(`(${signature?.slice(0, 32)}…)`)}`)
    verify(
      "the webhook got the message, with a signature that the client's verifier accepts",
      event.event === "message.new" && event.data["id"] === message.id
    )
    const forged = await verifyWebhook({ payload: payload.replace("Albatross", "Heron"), signature, secret })
      .then(() => undefined, (error: unknown) => error)
    verify(
      "a body that was changed on the way is not accepted",
      forged instanceof WebhookVerificationError && forged.reason === "bad_signature"
    )
    let waiting = await cleo.client.sync()
    for (const deadline = Date.now() + 3000; waiting.length > 0 && Date.now() < deadline;)
      waiting = await cleo.client.sync()
    verify("a message that the webhook accepted counts as delivered", waiting.length === 0)
    await cleo.client.deleteWebhook(webhook.id)
  } finally {
    receiver.close()
    receiver.closeAllConnections()
  }
}

interface Waited {
  readonly acknowledge_through: string
  readonly messages: ReadonlyArray<{
    readonly message_id: string
    readonly sender: { readonly handle: string }
    readonly content: { readonly text?: string }
  }>
}

const comeInByMcp: Scene = async (ada, _bob, cleo) => {
  const host = await cleo.mcp()
  /** Calls a tool and returns its structured result. Fails if the call is refused. */
  const call = async <A>(name: string, args: Record<string, unknown>): Promise<A> => {
    const result = await host.callTool({ name, arguments: args }) as CallToolResult
    if (result.isError === true) throw new Error(`${name}: ${JSON.stringify(result.content)}`)
    return result.structuredContent as A
  }
  try {
    const { tools } = await host.listTools()
    tell("cleo", `comes in by MCP and finds ${tools.length} tools`)
    const waiting = call<Waited>("agentchat_wait_for_messages", { timeout_seconds: 30 })
    tell("cleo", "waits for messages")
    const question = await ada.send(cleo, "Is the harbour full?")
    const { acknowledge_through, messages } = await waiting
    const [heard] = messages as [Waited["messages"][number]]
    tell("cleo", `hears ${heard.sender.handle}: "${heard.content.text}"`)
    verify(
      "a wait over MCP ended with the message that came",
      messages.length === 1 && heard.message_id === question.id
    )
    const text = "Two berths are free."
    tell("cleo", `to ada: "${text}"`)
    const sent = await call<{ readonly message_id: string }>("agentchat_send_message", {
      to: heard.sender.handle,
      text,
      reply_to: heard.message_id
    })
    await until("ada hears the answer", () => ada.heard.some(({ id }) => id === sent.message_id))
    const { acked } = await call<{ readonly acked: number }>("agentchat_acknowledge", {
      last_delivery_id: acknowledge_through
    })
    verify(
      "a message that was acknowledged over MCP is not left to fetch",
      acked === 1 && (await cleo.client.sync()).length === 0
    )
  } finally {
    await host.close()
  }
}

interface A2aTask {
  readonly id: string
  readonly status: { readonly state: string }
  readonly artifacts: ReadonlyArray<{ readonly parts: ReadonlyArray<{ readonly text?: string }> }>
}

const callByA2a: Scene = async (ada, bob, cleo) => {
  const card = await ada.a2a<{ readonly name: string; readonly capabilities: { readonly streaming: boolean } }>(
    cleo.handle,
    ".well-known/agent-card.json"
  )
  tell("ada", `reads the A2A card of ${card.name}, who is away`)
  const text = "Which berth for the Heron?"
  tell("ada", `calls cleo by A2A: "${text}"`)
  const message = { messageId: "heron-berth", role: "ROLE_USER", parts: [{ text }] }
  const send = { message, configuration: { returnImmediately: true } }
  const { task } = await ada.a2a<{ readonly task: A2aTask }>(cleo.handle, "message:send", send)
  const again = await ada.a2a<{ readonly task: A2aTask }>(cleo.handle, "message:send", send)
  verify(
    "a call by A2A to an agent that is away waits as a task, and a repeat is the same task",
    task.status.state === "TASK_STATE_SUBMITTED" && again.task.id === task.id
  )

  const host = await cleo.mcp()
  try {
    tell("cleo", "comes back, by MCP")
    const call = async <A>(name: string, args: Record<string, unknown>): Promise<A> => {
      const result = await host.callTool({ name, arguments: args }) as CallToolResult
      if (result.isError === true) throw new Error(`${name}: ${JSON.stringify(result.content)}`)
      return result.structuredContent as A
    }
    const wait = async (acknowledge?: string): Promise<Waited> => {
      const waited = await call<Waited>("agentchat_wait_for_messages", {
        timeout_seconds: 30,
        ...(acknowledge === undefined ? {} : { acknowledge_through: acknowledge })
      })
      for (const one of waited.messages) tell("cleo", `hears ${one.sender.handle}: "${one.content.text}"`)
      return waited
    }
    const first = await wait()
    const asked = "Is berth four free?"
    tell("cleo", `to bob: "${asked}"`)
    const sent = await call<{ readonly message_id: string }>("agentchat_send_message", { to: bob.handle, text: asked })
    await until("bob hears it", () => bob.heard.some(({ id }) => id === sent.message_id))
    const free = await bob.send(cleo, "It is.")
    const second = await wait(first.acknowledge_through)
    verify(
      "over MCP it heard what came by A2A while it was away, and then the answer over the TypeScript client",
      [...first.messages, ...second.messages].map(({ message_id }) => message_id).join() === [task.id, free.id].join()
    )
    const reply = "Berth four."
    tell("cleo", `to ada: "${reply}"`)
    await call("agentchat_send_message", { to: ada.handle, text: reply, reply_to: task.id })
    await call("agentchat_acknowledge", { last_delivery_id: second.acknowledge_through })
    const done = await ada.a2a<A2aTask>(cleo.handle, `tasks/${task.id}`)
    const answer = done.artifacts[0]?.parts[0]?.text
    tell("ada", `gets the task: ${done.status.state}, "${answer}"`)
    verify(
      "the reply over MCP completed the task of the A2A caller",
      done.status.state === "TASK_STATE_COMPLETED" && answer === reply
    )
  } finally {
    await host.close()
  }
}

/** `parley demo`: runs the demo and ends the process. */
export const demo = async (): Promise<void> => {
  const folder = await mkdtemp(join(tmpdir(), "parley-demo-")).catch((error: unknown) => {
    console.error(
      `parley: The folder for temporary files, ${tmpdir()}, cannot be used. Set TMPDIR to another one. (${
        String(Reflect.get(Object(error), "code"))
      })`
    )
    process.exit(1)
  })
  let server: Server | undefined

  const interrupted = () => {
    server?.kill()
    void rm(folder, { recursive: true, force: true }).finally(() => process.exit(130))
  }
  process.once("SIGINT", interrupted)
  process.once("SIGTERM", interrupted)

  try {
    tell("server", "starts, and makes its database")
    server = await Server.start(join(folder, "data"))
    tell("server", `listens on ${server.url}`)
    await play(server)
    const code = await server.stop()
    tell("server", "has stopped")
    verify("the server finished its work and ended well", code === 0)
  } catch (error) {
    console.error(error)
    verify(`the demo ran to its end: ${error instanceof Error ? error.message : String(error)}`, false)
    if (server !== undefined) console.error(dim(server.output.slice(-2000)))
  } finally {
    server?.kill()
    await rm(folder, { recursive: true, force: true })
  }

  console.log()
  for (const { holds, what } of checks) console.log(`  ${holds ? paint(32, "✓") : paint(31, "✗")} ${what}`)
  process.exit(checks.every(({ holds }) => holds) ? 0 : 1)
}
