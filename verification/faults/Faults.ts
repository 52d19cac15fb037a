import { AgentChatClient, RealtimeClient } from "agentchatme"
import { createHash } from "node:crypto"
import { setTimeout as pause } from "node:timers/promises"
import { Client } from "pg"
import { WebSocket } from "ws"
import { admin } from "../../test/support/Admin.ts"
import { eventually } from "../../test/support/Eventually.ts"
import { deadTargets } from "./DeadTargets.ts"
import { again, ask, each, type Fault, isOver, memoryOf, metricOf, remaining, type Scene } from "./Fault.ts"
import { NEVER } from "./History.ts"
import { HttpPool } from "./HttpPool.ts"
import {
  breakFrames,
  deafNode,
  doubleFrames,
  halfFrames,
  lateFrames,
  muteNode,
  tornLines
} from "./LinesBetweenNodes.ts"
import type { LoadAgent } from "./Load.ts"
import { silentConnections } from "./SilentConnections.ts"
import type { Site, SiteNode, Unfit } from "./Site.ts"
import { unreadAnswers } from "./UnreadAnswers.ts"

/** Stops a node by SIGTERM. The node must then end by itself within 15 s, with exit code 0. */
const stop = async ({ problem, say }: Scene, node: SiteNode): Promise<void> => {
  const began = performance.now()
  const code = await node.stop()
  const took = ((performance.now() - began) / 1_000).toFixed(1)
  say(`${node.name} ended ${took} s after SIGTERM`)
  if (code !== 0) problem(`${node.name} ended with ${code} ${took} s after SIGTERM`)
}

const others = (site: Site, node: SiteNode): ReadonlyArray<SiteNode> => site.nodes.filter((other) => other !== node)

const kill = { resumesWithin: 5 } as const

const killNode: Fault = {
  ...kill,
  name: "kill-node",
  about: "kill -9 of a node, which is started again at the end",
  inject: ({ site }) => site.node(1).kill(),
  heal: ({ site }) => site.node(1).start()
}

const killNodes: Fault = {
  ...kill,
  name: "kill-nodes",
  about: "kill -9 of one node after another, each started again at once",
  inject: () => {},
  during: (scene) =>
    again(scene, 1_000, async () => {
      const node = scene.site.node(Math.floor(scene.random() * scene.site.nodes.length))
      await pause(scene.random() * 500)
      await node.kill()
      await node.start()
      const took = await scene.site.untilReady()
      scene.say(`${node.name} killed, all ready again after ${took.toFixed(1)} s`)
    }),
  heal: () => {}
}

// Each statement that stores messages is one transaction. These are parts of a Bind frame of PostgreSQL's protocol: an
// empty portal's name, and then the statement's name.
const APPENDS = ["\0append\0", "\0append_continuing\0"]
const SYNC = Buffer.from([0x53, 0, 0, 0, 4])
const READY = Buffer.from([0x5a, 0, 0, 0, 5, 0x49])
const ERROR = 0x45

const endsWith = (bytes: Buffer, end: Buffer): boolean => bytes.subarray(-end.length).equals(end)

/** The moments for a kill, between the node's statement and the answer to the sender. */
const MOMENTS = {
  asked: "PostgreSQL has been asked to commit and has not answered",
  committed: "PostgreSQL has committed and its answer has not reached the node",
  answered: "PostgreSQL's answer has just been given to the node"
} as const

type Moment = keyof typeof MOMENTS

const LONGEST_WAIT_MS = 10_000
/** Time after which the published client has repeated every request without an answer. */
const ASKED_AGAIN_MS = 1_500

/** Kills a node when a statement that stores messages is at this moment. Resolves with false if that did not occur. */
const killWhen = (node: SiteNode, moment: Moment): Promise<boolean> =>
  new Promise((resolve, reject) => {
    const link = node.toPostgres
    const begun = new Set<object>()
    const asked = new Set<object>()
    const end = (killed: Promise<boolean>) => {
      link.watcher = undefined
      clearTimeout(late)
      killed.then(resolve, reject)
    }
    const late = setTimeout(() => end(Promise.resolve(false)), LONGEST_WAIT_MS)
    const kill = () => end(node.kill().then(() => true))
    link.watcher = (stage, direction, bytes, connection) => {
      if (direction === "there") {
        if (stage === "come") return
        if (APPENDS.some((name) => bytes.includes(name))) begun.add(connection)
        if (!begun.has(connection) || !endsWith(bytes, SYNC)) return
        begun.delete(connection)
        asked.add(connection)
        if (moment === "asked") kill()
      } else if (asked.has(connection) && endsWith(bytes, READY)) {
        const stored = bytes[0] !== ERROR
        if (stage === "passed") asked.delete(connection)
        if (stored && moment === (stage === "come" ? "committed" : "answered")) kill()
      }
    }
  })

const killAtCommit: Fault = {
  ...kill,
  name: "kill-at-commit",
  about:
    "kill -9 of a node when it has asked to commit, when that is done, and when it has heard of it; started again at once",
  atLeast: 15,
  inject: () => {},
  during: async (scene) => {
    const { problem, random, say, site, stats } = scene
    const moments = Object.keys(MOMENTS) as ReadonlyArray<Moment>
    const seen = new Map<Moment, { kills: number; found: number }>(
      moments.map((moment) => [moment, { kills: 0, found: 0 }])
    )
    for (let turn = 0; turn < moments.length || !isOver(scene); turn++) {
      const moment = moments[turn % moments.length]!
      const node = site.node(Math.floor(random() * site.nodes.length))
      await pause(random() * 500)
      const { found } = stats()
      const hit = await killWhen(node, moment)
      if (!hit) {
        problem(`${node.name} stored nothing for ${LONGEST_WAIT_MS / 1_000} s`)
        continue
      }
      await node.start()
      await site.untilReady()
      await pause(ASKED_AGAIN_MS)
      const counts = seen.get(moment)!
      counts.kills++
      counts.found += stats().found - found
    }
    for (const [moment, { found, kills }] of seen) {
      say(`${kills} kills when ${MOMENTS[moment]}: ${found} sends were asked again and had been stored`)
      if (kills === 0) problem(`no kill when ${MOMENTS[moment]}`)
      // At the moment `asked`, PostgreSQL may not have stored anything yet.
      if (moment !== "asked" && found === 0) problem(`nothing had been stored when ${MOMENTS[moment]}`)
    }
  },
  heal: () => {}
}

const killPostgres: Fault = {
  name: "kill-postgres",
  about: "kill -9 of PostgreSQL, started again at once",
  resumesWithin: 10,
  inject: ({ site }) => site.postgres.restart(),
  heal: () => {}
}

/** Waits until PostgreSQL accepts statements. Resolves with true if it had ended and was started again. */
const revivePostgres = async (site: Site): Promise<boolean> => {
  let refused = 0
  let revived = false
  await eventually("PostgreSQL to take statements", async () => {
    const client = new Client(site.postgres.url())
    client.on("error", () => {})
    try {
      await client.connect()
      await client.query("SELECT 1")
      return true
    } catch (error) {
      // A PostgreSQL that recovers accepts connections too, and one that is about to end still does for a moment.
      refused = (error as NodeJS.ErrnoException).code === "ECONNREFUSED" ? refused + 1 : 0
      if (refused > 2) {
        refused = 0
        revived = true
        await site.postgres.restart()
      } else await pause(200)
      return undefined
    } finally {
      await client.end().catch(() => undefined)
    }
  }, 60_000)
  return revived
}

const diskFull: Fault = {
  name: "disk-full",
  about: "the disk of PostgreSQL is full to the last byte; once there is module, it is started again if it has ended",
  atLeast: 15,
  needsDisk: true,
  inject: ({ site }) => site.disk?.fill(),
  during: async (scene) => {
    const { problem, say, site, stats } = scene
    const before = stats()
    const turnedAway = () =>
      Object.entries(stats().retried).reduce((sum, [why, count]) => sum + (why.startsWith("503 ") ? count : 0), 0)
    const earlier = turnedAway()
    await again(scene, 250, () => site.disk?.fill())
    say(
      `${stats().accepted - before.accepted} sends accepted without room, ${
        turnedAway() - earlier
      } requests turned away with 503`
    )
    if (turnedAway() === earlier) problem("no request was turned away although the disk was full")
    for (const node of site.nodes)
      if (node.unready.size === 0) problem(`${node.name} was ready although the disk was full`)
  },
  heal: async ({ say, site }) => {
    site.disk?.clear()
    const revived = await revivePostgres(site)
    say(revived ? "PostgreSQL had ended, and was started again" : "PostgreSQL went on by itself")
  }
}

const terminateSessions: Fault = {
  name: "end-sessions",
  about: "all database sessions of one node terminated, every five seconds",
  inject: () => {},
  during: (scene) =>
    again(scene, 5_000, () =>
      scene.site.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE $1 || '@%'",
        [scene.site.node(1).name]
      )),
  heal: () => {}
}

const hangSessions: Fault = {
  name: "hang-sessions",
  about: "nothing passes between one node and PostgreSQL, and no connection ends",
  atLeast: 15,
  inject: ({ site }) => site.node(1).toPostgres.hold("there", "back"),
  heal: ({ site }) => site.node(1).toPostgres.release()
}

const loseAnswers: Fault = {
  name: "lose-answers",
  about: "what one node says reaches PostgreSQL, and no answer comes back",
  atLeast: 15,
  inject: ({ site }) => site.node(1).toPostgres.hold("back"),
  heal: ({ site }) => site.node(1).toPostgres.release()
}

const pauseNode: Fault = {
  name: "pause-node",
  about: "SIGSTOP of a node for longer than its locks last, then SIGCONT",
  atLeast: 15,
  resumesWithin: 5,
  silences: (site) => site.node(1),
  inject: ({ site }) => site.node(1).pause(),
  heal: ({ site }) => site.node(1).resume()
}

const cutNodes: Fault = {
  name: "cut-nodes",
  about: "nothing passes between one node and the others",
  inject: ({ site }) => {
    const node = site.node(1)
    for (const other of others(site, node)) {
      site.silence(node, other)
      site.silence(other, node)
    }
  },
  heal: ({ site }) => site.reconnect()
}

const cutOneWay: Fault = {
  name: "cut-one-way",
  about: "one node hears the others, and they do not hear it",
  inject: ({ site }) => {
    for (const other of others(site, site.node(1))) site.silence(site.node(1), other)
  },
  heal: ({ site }) => site.reconnect()
}

const unplug: Fault = {
  name: "unplug",
  about: "one node reaches neither PostgreSQL nor Redis nor other nodes, and none of them reaches it",
  atLeast: 15,
  resumesWithin: 5,
  silences: (site) => site.node(1),
  inject: ({ site }) => site.unplug(site.node(1)),
  heal: ({ site }) => site.reconnect()
}

const redisDown: Fault = {
  name: "redis-down",
  about: "kill -9 of Redis, started again at the end, empty",
  inject: () => {},
  during: (scene) => withoutRedis(scene, () => pause(remaining(scene))),
  heal: () => {}
}

const redisSlow: Fault = {
  name: "redis-slow",
  about: "what nodes say to Redis arrives 5 s late",
  inject: ({ site }) => {
    for (const node of site.nodes) node.toRedis.delayMs = 5_000
  },
  heal: ({ site }) => site.reconnect()
}

/** Time after which every node has noticed that Redis is back. */
const REDIS_BACK_MS = 2_000

/** Ends Redis with all its data, runs `during`, and starts Redis again. */
const withoutRedis = async ({ load: { history }, site }: Scene, during: () => Promise<unknown>): Promise<void> => {
  const span = { from: history.now(), until: NEVER }
  history.withoutRedis.push(span)
  await site.redis.kill()
  await during()
  await site.redis.launch()
  await pause(REDIS_BACK_MS)
  span.until = history.now()
}

/** Default limits for every agent. Each address in the proxy's header counts as an address of its own. */
const LIMITED = { LIMITS_SENDS_PER_SECOND: "60", TRUST_PROXY: "1" } as const
const FLOOD_AT_ONCE = 400
const FLOOD_EVERY_MS = 500
/** Requests of one address to each node, which are more than its limits of an hour. */
const ASKED = 20

/**
 * Twice a second, sends 400 messages of one agent over two nodes. Also requests registrations and codes from one
 * address.
 */
const flood = async (scene: Scene): Promise<void> => {
  const { load, random, say, site } = scene
  const urls = site.nodes.slice(0, 2).map(({ url }) => url)
  const address = `192.0.2.${1 + Math.floor(random() * 250)}`
  const taken = { registration: 0, code: 0 }
  const asking = (async () => {
    for (let n = 0; n < ASKED; n++) {
      for (const kind of ["registration", "code"] as const) {
        if (await load.askFrom(address, kind, urls[n % urls.length]!) === true) taken[kind]++
      }
    }
  })()
  const began = performance.now()
  let accepted = 0
  let refused = 0
  await again(scene, 0, async () => {
    const next = pause(FLOOD_EVERY_MS)
    const counts = await load.flood(urls, FLOOD_AT_ONCE)
    accepted += counts.accepted
    refused += counts.refused
    await next
  })
  await asking
  const seconds = (performance.now() - began) / 1_000
  say(
    `one agent: ${(accepted / seconds).toFixed(1)} sends accepted per second, ${
      (refused / seconds).toFixed(0)
    } refused; ` +
      `one address: ${taken.registration} registrations and ${taken.code} codes of ${ASKED} each`
  )
}

const floodFault: Fault = {
  name: "flood",
  about:
    "one agent sends 400 at once over two nodes, again and again; registrations and codes of one address beside it",
  settings: LIMITED,
  inject: () => {},
  during: (scene) => notingWhoDecidesAlone(scene, () => flood(scene)),
  heal: () => {}
}

const floodAlone: Fault = {
  name: "flood-alone",
  about: "the same while there is no Redis: each node counts for itself",
  settings: LIMITED,
  inject: () => {},
  during: (scene) => withoutRedis(scene, () => flood(scene)),
  heal: () => {}
}

const LOOK_ALONE_MS = 250

/**
 * The number of requests that a node decided by its own count alone, because Redis did not answer; 0 if the node does
 * not report it.
 */
const decidedAlone = (node: SiteNode): Promise<number> => metricOf(node, "rate_limits_alone_total")

/**
 * Records the times at which a node decided by its own count alone. A node may do so for a second after three slow
 * answers of Redis, and then more windows than the one in Redis count. A node that does so most of the time is reported
 * as a problem.
 */
const notingWhoDecidesAlone = async (scene: Scene, during: () => Promise<unknown>): Promise<void> => {
  const { load: { history }, problem, say, site } = scene
  const state = { over: false, looks: 0, alone: 0 }
  const looking = (async () => {
    const known = new Map<SiteNode, number>()
    let from = history.now()
    while (!state.over) {
      const counts = await Promise.all(site.nodes.map(decidedAlone))
      const changed = site.nodes.filter((node, i) => counts[i] !== (known.get(node) ?? counts[i]))
      site.nodes.forEach((node, i) => known.set(node, counts[i]!))
      const until = history.now()
      if (changed.length > 0) history.withoutRedis.push({ from, until })
      state.looks++
      if (changed.length > 0) state.alone++
      from = until
      await pause(LOOK_ALONE_MS)
    }
  })()
  await during()
  state.over = true
  await looking
  say(`in ${state.alone} of ${state.looks} looks a node had decided alone`)
  if (state.alone > state.looks / 2) problem("nodes decided alone most of the time, though Redis was there")
}

const redisEmpty: Fault = {
  name: "redis-empty",
  about: "kill -9 of Redis, which is started again at once and knows nothing, under the same flood",
  settings: LIMITED,
  inject: () => {},
  during: (scene) =>
    notingWhoDecidesAlone(scene, async () => {
      const flooding = flood(scene)
      await again(scene, 6_000, () => withoutRedis(scene, () => Promise.resolve()))
      await flooding
    }),
  heal: () => {}
}

const NEIGHBOURS: ReadonlyArray<readonly [Unfit, "below" | "above"]> =
  (["another secret", "no secret", "no way out"] as const)
    .flatMap((unfit) => [[unfit, "below"], [unfit, "above"]] as const)
const NEIGHBOUR_STAYS_MS = 8_000
const NEIGHBOUR_LOOKS_MS = 250

const badNeighbour: Fault = {
  name: "bad-neighbour",
  about:
    "one more node with another RUNNER_SECRET, with none, without a way out to the others, at addresses before and after theirs",
  needsNetwork: true,
  failsNoSend: true,
  keepsReady: true,
  resumesWithin: 3,
  inject: () => {},
  during: async (scene) => {
    const { problem, say, site } = scene
    for (const [unfit, order] of NEIGHBOURS) {
      const neighbour = await site.neighbour(unfit, order)
      const what = `a node with ${unfit}, ${order} the others,`
      await neighbour.start()
      const until = performance.now() + NEIGHBOUR_STAYS_MS
      let ready = 0
      let listed = 0
      while (performance.now() < until && neighbour.isRunning) {
        if (await neighbour.look()) ready++
        if (await site.lists(neighbour)) listed++
        await pause(NEIGHBOUR_LOOKS_MS)
      }
      const how = neighbour.isRunning ? "runs" : `has ended: ${neighbour.output().trim().split("\n").at(-1)}`
      say(`${what} ${how}; ${[...neighbour.unready.keys()].at(-1) ?? ""}`)
      if (ready > 0) problem(`${what} was ready ${ready} times`)
      if (listed > 0) problem(`${what} was listed ${listed} times`)
      await neighbour.kill()
      site.network?.heal()
    }
  },
  heal: () => {}
}

const FILE = "What a ship carries"

const filesDown: Fault = {
  name: "files-down",
  about: "kill -9 of S3: no upload is taken for done, and after it every one can be",
  inject: ({ site }) => site.files.kill(),
  heal: ({ site }) => site.files.launch(),
  during: async (scene) => {
    const { problem, site } = scene
    const [from, to] = await site.agents(2) as [LoadAgent, LoadAgent]
    const reserved = await ask(site.node(0), from, "POST", "/v1/uploads", {
      to: to.handle,
      filename: "ship.txt",
      content_type: "text/plain",
      size: FILE.length,
      sha256: createHash("sha256").update(FILE).digest("hex")
    })
    if (reserved.status >= 500 && reserved.status !== 503)
      problem(`reserving an upload without S3 answered ${reserved.status}`)
    const message = {
      to: to.handle,
      client_msg_id: "a file",
      type: "file",
      content: { attachment_id: reserved.body["attachment_id"] ?? "att_0000000000000000" }
    }
    const taken = await fetch(String(reserved.body["upload_url"]), { method: "PUT", body: FILE }).then(
      ({ ok }) => ok,
      () => false
    )
    if (taken) problem("an upload was taken without S3")
    const early = await ask(site.node(0), from, "POST", "/v1/messages", message)
    if (early.status < 400 || early.status === 500) problem(`a file that is nowhere was sent: ${JSON.stringify(early)}`)
    await pause(remaining(scene))
    await site.files.launch()
    const late = await fetch(String(reserved.body["upload_url"]), {
      method: "PUT",
      body: FILE,
      headers: { "content-type": "text/plain" }
    })
    if (!late.ok) problem(`after S3 had come back an upload answered ${late.status}: ${await late.text()}`)
    const sent = await ask(site.node(0), from, "POST", "/v1/messages", message)
    if (sent.status !== 201) problem(`after S3 had come back a file could not be sent: ${JSON.stringify(sent)}`)
  }
}

const mailDown: Fault = {
  name: "mail-down",
  about: "no mail server: registering is refused or answered, and works after it",
  inject: ({ site }) => site.mail.stop(),
  during: async (scene) => {
    const { problem, site } = scene
    const register = async (handle: string) => {
      const answer = await fetch(`${site.node(0).url}/v1/register`, {
        method: "POST",
        body: JSON.stringify({ email: `${handle}@agents.example`, handle })
      })
      const { code } = await answer.json() as { readonly code?: string }
      return code ?? answer.status
    }
    const without = await register(`mail-${Math.floor(scene.random() * 1e9).toString(36)}`)
    if (without !== 200 && without !== "OTP_FAILED") problem(`registering without a mail server answered ${without}`)
    await pause(remaining(scene))
    await site.mail.launch()
    const handle = `mail-${Math.floor(scene.random() * 1e9).toString(36)}`
    await eventually("registering to work again", async () => await register(handle) === 200 || undefined, 20_000)
      .catch((error: unknown) => problem(String(error)))
    await eventually(
      "the mail with the code",
      () => site.mail.received.includes(`${handle}@agents.example`) || undefined,
      10_000
    )
      .catch((error: unknown) => problem(String(error)))
  },
  heal: () => {}
}

const clockAhead: Fault = {
  name: "clock-ahead",
  about: "a node is started with its clock an hour ahead, which is set right while it runs",
  inject: async (scene) => {
    const { site } = scene
    await stop(scene, site.node(1))
    await site.node(1).start({ CLOCK_SHIFT_SECONDS: "3600" })
    await site.untilReady([site.node(1)])
  },
  heal: ({ site }) => site.node(1).jumpClock()
}

const clockBehind: Fault = {
  name: "clock-behind",
  about: "a node's clock jumps an hour back while it runs, and the node is started again with a right one",
  inject: ({ site }) => site.node(1).jumpClock(),
  heal: async (scene) => {
    const { site } = scene
    await stop(scene, site.node(1))
    await site.node(1).start()
  }
}

const STALLED_SOCKETS = 10
const STALLED_BYTES = 12 * 1024 * 1024
const STALLED_TEXT = 30_000
const STALLED_AT_ONCE = 16
/** Time in which a closed socket notices its end once it reads again. */
const STALLED_CLOSE_MS = 3_000
/**
 * The memory growth that is allowed: twice the unsent bytes of the sockets (4 MiB each), and 200 MiB for everything
 * else.
 */
const STALLED_GROWTH = 2 * STALLED_SOCKETS * 4 * 1024 * 1024 + 200 * 1024 * 1024

const socketOf = async (node: SiteNode, key: string): Promise<WebSocket> => {
  const socket = new WebSocket(`${node.url.replace("http", "ws")}/v1/ws`, { perMessageDeflate: false })
  socket.on("error", () => {})
  await new Promise((resolve, reject) => socket.once("open", resolve).once("close", reject))
  socket.send(JSON.stringify({ type: "hello", api_key: key, capabilities: ["ack"] }))
  await new Promise((resolve, reject) => socket.once("message", resolve).once("close", reject))
  return socket
}

const stalledReader: Fault = {
  name: "stalled-reader",
  about: "ten sockets of an agent stop reading while 12 MB are sent to it",
  inject: () => {},
  during: async (scene) => {
    const { problem, site } = scene
    const [from, to] = await site.agents(2) as [LoadAgent, LoadAgent]
    const node = site.node(0)
    await ask(node, from, "POST", "/v1/messages", { to: to.handle, client_msg_id: "first", content: { text: "first" } })
    await ask(node, to, "POST", "/v1/messages", { to: from.handle, client_msg_id: "reply", content: { text: "reply" } })
    const sockets = await Promise.all(Array.from({ length: STALLED_SOCKETS }, () => socketOf(node, to.key)))
    const closes = sockets.map((socket) => new Promise<number>((resolve) => socket.once("close", resolve)))
    for (const socket of sockets) socket.pause()
    const before = memoryOf(node, "now")
    let highest = before
    const count = Math.ceil(STALLED_BYTES / STALLED_TEXT)
    for (let at = 0; at < count; at += STALLED_AT_ONCE) {
      await Promise.all(Array.from({ length: Math.min(STALLED_AT_ONCE, count - at) }, async (_, i) => {
        const content = { text: `${at + i} `.padEnd(STALLED_TEXT, "stalled ") }
        const sent = await ask(node, from, "POST", "/v1/messages", {
          to: to.handle,
          client_msg_id: `stalled-${at + i}`,
          content
        })
        if (sent.status !== 201) problem(`a send to a reader that has stopped answered ${sent.status}`)
      }))
      highest = Math.max(highest, memoryOf(node, "now"))
    }
    await again(scene, 250, () => highest = Math.max(highest, memoryOf(node, "now")))
    if (highest - before > STALLED_GROWTH) {
      problem(`ten sockets that do not read let the node grow by ${((highest - before) / 1048576).toFixed(0)} MiB`)
    }
    for (const socket of sockets) socket.resume()
    // A socket whose share fits into the machine's buffers stays open (0). A closed one may see only that its
    // connection broke (1006).
    const codes = await Promise.all(
      closes.map((closed) => Promise.race([closed, pause(STALLED_CLOSE_MS, 0, { ref: false })]))
    )
    if (codes.some((code) => ![0, 1013, 1006].includes(code)))
      problem(`stalled sockets were closed with ${codes.join(", ")}`)
    const seen = new Set<unknown>()
    const late = await socketOf(node, to.key)
    late.on("message", (data) => {
      const frame = JSON.parse(String(data)) as { readonly payload?: { readonly client_msg_id?: unknown } }
      seen.add(frame.payload?.client_msg_id)
    })
    const all = () => Array.from({ length: count }, (_, n) => `stalled-${n}`).every((id) => seen.has(id)) || undefined
    await eventually("what a stalled reader has missed", all, 20_000).catch((error: unknown) => problem(String(error)))
    late.terminate()
    for (const socket of sockets) socket.terminate()
  },
  heal: () => {}
}

const STORM_AGENTS = 300
/** The number of messages that each agent sends to its partner while nobody is connected. */
const STORM_MESSAGES = 2
/** The shortest time from one cut to the next. */
const STORM_PAUSE_MS = 2_000
const STORM_WAIT_MS = 60_000
const STORM_CUTS = 3
/** The time from one cut to the next, while shown messages are not acknowledged yet. */
const STORM_LAST_MS = 5_000

const reconnects: Fault = {
  name: "reconnects",
  about:
    "300 sockets of the published client are cut at once, again and again, and messages come for each before it is back",
  inject: () => {},
  during: async (scene) => {
    const { problem, say, site } = scene
    const agents = await site.agents(STORM_AGENTS)
    const pool = new HttpPool()
    /** Repeats a send until it is stored, because this fault does not test sends. */
    const send = async (at: number, id: string): Promise<void> => {
      const [from, to] = [agents[at]!, agents[at ^ 1]!]
      const body = JSON.stringify({ to: `@${to.handle}`, client_msg_id: id, content: { text: id } })
      for (const deadline = performance.now() + STORM_WAIT_MS; performance.now() < deadline; await pause(200)) {
        const base = site.targets[at % site.targets.length]!.url
        const reply = await pool.request(base, "POST", "/v1/messages", from.key, body, 10_000).catch(() => undefined)
        if (reply !== undefined && reply.status < 300) return
        if (reply !== undefined && reply.status < 500)
          return problem(`${id} of @${from.handle} was answered with ${reply.status}: ${reply.text}`)
      }
      problem(`${id} of @${from.handle} could not be sent`)
    }
    const sockets = new Set<WebSocket>()
    class Cuttable extends WebSocket {
      constructor(url: string) {
        super(url, { perMessageDeflate: false })
        sockets.add(this)
        this.on("close", () => sockets.delete(this))
      }
    }
    const missing = agents.map(() => new Set<string>())
    const clients = agents.map(({ handle, key }, at) => {
      const client = new RealtimeClient({
        apiKey: key,
        baseUrl: site.url.replace("http", "ws"),
        client: new AgentChatClient({ apiKey: key, baseUrl: site.url }),
        // The client accepts any class of sockets, although its type is that of browsers.
        webSocket: Cuttable as unknown as typeof globalThis.WebSocket
      })
      const seen = new Set<string>()
      client.onError(() => {})
      client.on("message.new", ({ payload }) => {
        const { client_msg_id: id, sender } = payload as { readonly client_msg_id: string; readonly sender: string }
        if (sender === handle) return
        if (seen.has(id)) problem(`@${handle} was shown ${id} twice`)
        seen.add(id)
        missing[at]!.delete(id)
      })
      return client
    })
    const cut = () => {
      for (const socket of sockets) socket.terminate()
    }
    const left = () => missing.reduce((sum, some) => sum + some.size, 0)
    const all = async (what: string) => {
      const began = performance.now()
      const isAll = () => (left() === 0 && clients.every(({ isConnected }) => isConnected)) || undefined
      await eventually("all", isAll, STORM_WAIT_MS).catch(() => {
        const away = clients.filter(({ isConnected }) => !isConnected).length
        problem(
          `${what}: ${left()} messages have not come, ${away} of ${STORM_AGENTS} clients are not connected after ${
            STORM_WAIT_MS / 1_000
          } s`
        )
      })
      return performance.now() - began
    }
    try {
      // One side writes and the other replies, so that both may write from then on.
      for (const side of [0, 1])
        await each(agents, async (_, at) => at % 2 === side ? await send(at, `hello ${at}`) : undefined)
      agents.forEach((_, at) => missing[at]!.add(`hello ${at ^ 1}`))
      await each(clients, (client) => client.connect())
      await all("at first")
      const took: Array<number> = []
      for (let turn = 0; turn < STORM_CUTS || !isOver(scene); turn++) {
        const ids = Array.from({ length: STORM_MESSAGES }, (_, n) => (at: number) => `storm ${turn} ${n} of ${at}`)
        // Only one side of each pair writes. For a client that was offline, its own messages would be gaps in its
        // backlog.
        const writes = (at: number) => at % 2 === turn % 2
        agents.forEach((_, at) => writes(at) && ids.forEach((id) => missing[at ^ 1]!.add(id(at))))
        const next = pause(STORM_PAUSE_MS)
        cut()
        await each(agents, async (_, at) => {
          if (writes(at)) { for (const id of ids) await send(at, id(at)) }
        })
        took.push(await all(`after cut ${turn + 1}`))
        await next
      }
      say(
        `${took.length} times ${STORM_AGENTS} sockets cut: all had all at most ${
          (Math.max(...took) / 1_000).toFixed(1)
        } s after the last send`
      )
      let waiting = 0
      let cutAt = performance.now()
      // The client sends an acknowledgement only once and learns its outcome when it connects again.
      await eventually("nothing to wait", async () => {
        if (performance.now() - cutAt > STORM_LAST_MS) {
          cut()
          cutAt = performance.now()
        }
        waiting = 0
        await each(agents, async (agent) => {
          const reply = await pool.request(
            site.node(0).url,
            "GET",
            "/v1/messages/sync?limit=500",
            agent.key,
            undefined,
            10_000
          )
          waiting += (JSON.parse(reply.text) as ReadonlyArray<unknown>).length
        })
        return waiting === 0 || undefined
      }, STORM_WAIT_MS).catch(() => problem(`${waiting} messages that were shown still wait`))
    } finally {
      for (const client of clients) client.disconnect()
      pool.close()
    }
  },
  heal: () => {}
}

const rollingRestart: Fault = {
  name: "rolling-restart",
  about: "SIGTERM of every node, one after the other, each started again before the next",
  failsNoSend: true,
  inject: () => {},
  during: async (scene) => {
    for (let turn = 0; turn < scene.site.nodes.length || !isOver(scene); turn++) {
      const node = scene.site.node(turn % scene.site.nodes.length)
      await stop(scene, node)
      await node.start()
      await scene.site.untilReady([node])
    }
  },
  heal: () => {}
}

const DRAINED_MS = 3_000

const drainNode: Fault = {
  name: "drain-node",
  about: "an operator drains one node after another, and undrains it three seconds later",
  failsNoSend: true,
  inject: () => {},
  during: async (scene) => {
    const { random, site } = scene
    const order = async (order: string, { runner }: SiteNode) => {
      const { code, stderr } = await admin(
        { DATABASE_URL: site.database },
        "nodes",
        order,
        `${runner.host}:${runner.port}`
      )
      if (code !== 0) scene.problem(`nodes ${order}: ${stderr}`)
    }
    await again(scene, DRAINED_MS, async () => {
      const node = site.node(Math.floor(random() * site.nodes.length))
      await order("drain", node)
      await pause(DRAINED_MS)
      await order("undrain", node)
    })
  },
  heal: () => {}
}

/** The pause between two steps of scaling, as an operator would make it. */
const SETTLE_MS = 2_000

const oneThreeOne: Fault = {
  name: "1-3-1",
  about: "all nodes but one taken away, two started, two taken away, under load",
  failsNoSend: true,
  inject: () => {},
  during: async (scene) => {
    const [, ...more] = scene.site.nodes
    const leave = () => Promise.all(more.map((node) => stop(scene, node)))
    await leave()
    await pause(Math.max(SETTLE_MS, remaining(scene) / 3))
    await Promise.all(more.map((node) => node.start()))
    await scene.site.untilReady()
    await pause(Math.max(SETTLE_MS, remaining(scene) / 2))
    await leave()
    await pause(Math.max(SETTLE_MS, remaining(scene)))
  },
  heal: async ({ site }) => {
    await Promise.all(site.nodes.filter((node) => !node.isRunning).map((node) => node.start()))
  }
}

/** All faults, in the order in which they are caused. */
export const faults: ReadonlyArray<Fault> = [
  killNode,
  killNodes,
  killAtCommit,
  killPostgres,
  diskFull,
  terminateSessions,
  hangSessions,
  loseAnswers,
  pauseNode,
  cutNodes,
  cutOneWay,
  unplug,
  breakFrames,
  tornLines,
  halfFrames,
  doubleFrames,
  lateFrames,
  muteNode,
  deafNode,
  redisDown,
  redisSlow,
  filesDown,
  mailDown,
  clockAhead,
  clockBehind,
  stalledReader,
  unreadAnswers(),
  silentConnections,
  deadTargets(),
  reconnects,
  badNeighbour,
  floodFault,
  floodAlone,
  redisEmpty,
  rollingRestart,
  drainNode,
  oneThreeOne
]
