import { createServer, type Server } from "node:http"
import type { AddressInfo } from "node:net"
import { setTimeout as pause } from "node:timers/promises"
import { eventually } from "../../test/support/Eventually.ts"
import { again, ask, each, type Fault, type Scene } from "./Fault.ts"
import { isAsFast, type Latency, latencyOf, shown } from "./Latency.ts"
import type { LoadAgent } from "./Load.ts"
import type { Site } from "./Site.ts"

const DEAD_AGENTS = 60
/** Webhooks of each of the DEAD_AGENTS, which are as many as an agent may have. */
const WEBHOOKS = 5
const CALLERS = 3
/** Tasks of each caller. Each has CONFIGS push configurations, which are as many as a task may have. */
const TASKS = 5
const CONFIGS = 10
/** The interval of events that are posted to each dead target. */
const POSTED_EVERY_MS = 5_000
const HEALTHY_EVERY_MS = 100
const HEALTHY_BEFORE = 20
/** How often a request of the preparation is sent while the answer is 503. */
const TRIES = 5
/** The longest that a post to the healthy webhook may take, once the fault has ended. */
const LONGEST_WAIT_MS = 60_000
/**
 * Lower medians of posts count as this, because a busy machine explains them. A post behind dead targets waits for tens
 * of seconds.
 */
const FLOOR_MS = 2_000

/**
 * HTTP servers on ports of their own: dead targets, which accept requests and never answer, and the healthy one, which
 * answers 200.
 */
class Targets {
  /** When each message arrived at the healthy target. */
  readonly arrived = new Map<string, number>()
  /** The number of posts that dead targets have received. */
  posted = 0
  private readonly servers: Array<Server> = []
  private readonly host: string

  constructor(host: string) {
    this.host = host
  }

  dead(): Promise<string> {
    return this.listen(createServer((request) => {
      this.posted++
      request.resume()
    }))
  }

  healthy(): Promise<string> {
    return this.listen(createServer((request, response) => {
      let text = ""
      request.setEncoding("utf8").on("data", (part: string) => text += part).on("end", () => {
        const { data } = JSON.parse(text) as { readonly data: { readonly client_msg_id: string } }
        if (!this.arrived.has(data.client_msg_id)) this.arrived.set(data.client_msg_id, performance.now())
        response.end()
      })
    }))
  }

  stop(): void {
    for (const server of this.servers) {
      server.closeAllConnections()
      server.close()
    }
  }

  private async listen(server: Server): Promise<string> {
    await new Promise<void>((resolve) => server.listen(0, this.host, resolve))
    this.servers.push(server)
    return `http://${this.host}:${(server.address() as AddressInfo).port}/`
  }
}

/** The agents, webhooks and targets that the fault has prepared. */
interface World {
  readonly targets: Targets
  /** Sends a message of the healthy pair; resolves once it is stored. */
  readonly say: (id: string) => Promise<void>
  /** When each message to the healthy webhook was sent. */
  readonly sent: Map<string, number>
  readonly before: Latency
  /** Causes an event for every dead target. */
  readonly post: (turn: number) => Promise<void>
}

const request = async (
  site: Site,
  at: number,
  agent: LoadAgent,
  path: string,
  body: object
): Promise<Readonly<Record<string, unknown>>> => {
  let answer = await ask(site.node(at % site.nodes.length), agent, "POST", path, body)
  // As a client does. A repeated request may register a second webhook or configuration, which is dead too.
  for (let tries = 1; answer.status === 503 && tries < TRIES; tries++) {
    await pause(1_000)
    answer = await ask(site.node(at % site.nodes.length), agent, "POST", path, body)
  }
  if (answer.status >= 300)
    throw new Error(`POST ${path} for the dead targets answered ${answer.status}: ${JSON.stringify(answer.body)}`)
  return answer.body
}

const prepare = async (site: Site): Promise<World> => {
  const targets = new Targets(site.outside)
  const [from, to, ...others] = await site.agents(2 + DEAD_AGENTS + 2 * CALLERS) as [
    LoadAgent,
    LoadAgent,
    ...Array<LoadAgent>
  ]
  const [dead, callers, called] = [
    others.slice(0, DEAD_AGENTS),
    others.slice(DEAD_AGENTS, -CALLERS),
    others.slice(-CALLERS)
  ]
  const message = (at: number, sender: LoadAgent, handle: string, id: string, metadata: object = {}) =>
    request(site, at, sender, "/v1/messages", { to: handle, client_msg_id: id, content: { text: id }, metadata })

  // The agent that will receive many messages writes first, so that these are replies.
  await message(0, to, from.handle, "first")
  await each(callers, (caller, c) => message(c, called[c]!, caller.handle, "first"))
  await each(dead, async (agent, at) => {
    await message(at, agent, from.handle, "first")
    for (let n = 0; n < WEBHOOKS; n++)
      await request(site, at, agent, "/v1/webhooks", { url: await targets.dead(), events: ["message.new"] })
  })
  const tasks = callers.flatMap((caller, c) =>
    Array.from({ length: TASKS }, (_, n) => ({ caller, called: called[c]!, n, id: "" }))
  )
  await each(tasks, async (task, at) => {
    const path = `/a2a/${task.called.handle}`
    const given = { messageId: `task-${task.n}`, role: "ROLE_USER", parts: [{ text: "a task" }] }
    const begun = await request(site, at, task.caller, `${path}/message:send?A2A-Version=1.0`, {
      message: given,
      configuration: { returnImmediately: true }
    })
    task.id = (begun as { readonly task: { readonly id: string } }).task.id
    for (let n = 0; n < CONFIGS; n++) {
      await request(site, at, task.caller, `${path}/tasks/${task.id}/pushNotificationConfigs?A2A-Version=1.0`, {
        url: await targets.dead()
      })
    }
  })

  const sent = new Map<string, number>()
  await request(site, 0, to, "/v1/webhooks", { url: await targets.healthy(), events: ["message.new"] })
  const say = async (id: string): Promise<void> => {
    sent.set(id, performance.now())
    await message(sent.size, from, to.handle, id)
  }
  for (let n = 0; n < HEALTHY_BEFORE; n++) {
    await say(`before-${n}`)
    await eventually("a post to the healthy webhook", () => targets.arrived.get(`before-${n}`))
  }
  return {
    targets,
    say,
    sent,
    before: latencyOf(timesOf({ sent, targets }, "before")),
    post: async (turn) => {
      await each(dead, (agent, at) => message(at, from, agent.handle, `dead-${turn}-${at}`))
      if (turn > 0) return
      await each(
        tasks,
        ({ called: agent, caller, id, n }, at) => message(at, agent, caller.handle, `answer-${n}`, { reply_to: id })
      )
    }
  }
}

/** How long the posts took from the send to their arrival, in milliseconds. */
const timesOf = ({ sent, targets }: Pick<World, "sent" | "targets">, prefix: string): ReadonlyArray<number> =>
  [...sent].flatMap(([id, at]) => id.startsWith(prefix) ? [(targets.arrived.get(id) ?? Infinity) - at] : [])

/** Waits for the outstanding posts and checks the latency of all posts. */
const judge = async ({ before, sent, targets }: World, { problem, say }: Scene): Promise<void> => {
  const missing = () => [...sent.keys()].filter((id) => !targets.arrived.has(id)).length
  await eventually("all posts", () => missing() === 0 || undefined, LONGEST_WAIT_MS)
    .catch(() => problem(`${missing()} of ${sent.size} posts to the healthy webhook have not arrived`))
  const during = latencyOf(timesOf({ sent, targets }, "during"))
  say(
    `${targets.posted} posts to dead targets; ${sent.size} to the healthy webhook, median and p95 in ms: ${
      shown(before)
    } before, ${shown(during)} during`
  )
  if (!isAsFast(before, during, FLOOR_MS))
    problem(`posts to the healthy webhook took ${shown(during)} ms, and ${shown(before)} ms before (median and p95)`)
  if (targets.posted === 0) problem("nothing was posted to the dead targets")
}

export const deadTargets = (): Fault => {
  let world: World | undefined
  return {
    name: "dead-targets",
    about: "300 webhooks and 150 push configurations on targets that never answer, beside a healthy webhook",
    settings: { WEBHOOK_ALLOW_PRIVATE: "all" },
    rate: 200,
    failsNoSend: true,
    keepsSpeed: true,
    prepare: async (site) => {
      world = await prepare(site)
    },
    inject: () => {},
    during: async (scene) => {
      const { post, say } = world!
      let turn = 0
      const posting = again(scene, POSTED_EVERY_MS, () => post(turn++))
      let n = 0
      await again(scene, 0, async () => {
        const next = pause(HEALTHY_EVERY_MS)
        await say(`during-${n++}`)
        await next
      })
      await posting
    },
    heal: async (scene) => {
      await judge(world!, scene)
      world!.targets.stop()
    }
  }
}
