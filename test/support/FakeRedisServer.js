// The thread behind FakeRedis.ts: the commands of Redis that rates need, answered late or not at all on demand.
// oxlint-disable unicorn/require-post-message-target-origin -- a thread has no origin
import { createServer } from "node:net"
import { parentPort, workerData } from "node:worker_threads"

/** Shared with the test: milliseconds until an answer (-1: none), commands and requests that were decided. */
const figures = new Int32Array(workerData)
const [DELAY, COMMANDS, REQUESTS] = [0, 1, 2]

/** Accepted requests by window, in microseconds. */
const lists = new Map()
let lastMicros = 0
const micros = () =>
  lastMicros = Math.max(lastMicros + 1, Math.round((performance.timeOrigin + performance.now()) * 1_000))

const within = (key, from) => {
  const list = (lists.get(key) ?? []).filter((at) => at > from)
  lists.set(key, list)
  return list
}

const decide = (windows, now) => {
  let [refusing, longest] = [0, 0]
  for (const [i, { key, limit, windowMicros }] of windows.entries()) {
    const list = within(key, now - windowMicros)
    const wait = list.length < limit ? 0 : list[list.length - limit] + windowMicros - now
    if (wait > longest) [refusing, longest] = [i + 1, wait]
  }
  if (refusing > 0) return { code: refusing, wait: Math.ceil(longest / 1_000), places: [] }
  return {
    code: 0,
    places: windows.flatMap(({ key, limit, windowMicros }) => {
      const list = lists.get(key)
      list.push(now)
      return [limit - list.length, Math.ceil((list[0] + windowMicros - now) / 1_000), now]
    })
  }
}

/** The answer of the script in SlidingWindowScript.ts. */
const take = ([, count, ...rest]) => {
  const keys = rest.slice(0, Number(count))
  const args = rest.slice(Number(count)).map(Number)
  const now = micros()
  Atomics.add(figures, COMMANDS, 1)
  if (args[1] > 0 && now > args[1]) return [now]
  const answer = [now]
  for (let key = 0, arg = 2; key < keys.length;) {
    const [n, alone] = [args[arg], args[arg + 1]]
    const windows = Array.from({ length: n }, (_, i) => ({
      key: keys[key + i],
      limit: args[arg + 2 + 2 * i],
      windowMicros: args[arg + 3 + 2 * i] * 1_000
    }))
    key += n
    arg += 2 + 2 * n
    Atomics.add(figures, REQUESTS, 1)
    const first = decide(windows.slice(0, alone), now)
    const others = first.code === 0 ? decide(windows.slice(alone), now) : { code: 0, places: [] }
    const places = [...first.places, ...others.places]
    const code = first.code || (others.code && others.code + alone)
    answer.push(code, places.length / 3, ...(code > 0 ? [first.wait ?? others.wait] : []), ...places)
  }
  return answer
}

const answerTo = ([name, ...args]) => {
  switch (name.toUpperCase()) {
    case "EVALSHA":
      return take(args)
    case "INFO":
      return "redis_version:7.0.0\r\nloading:0\r\n"
    case "LREM": {
      const list = lists.get(args[0]) ?? []
      const at = list.lastIndexOf(Number(args[2]))
      if (at >= 0) list.splice(at, 1)
      return at >= 0 ? 1 : 0
    }
    default:
      return "OK"
  }
}

const encode = (value) =>
  Array.isArray(value)
    ? `*${value.length}\r\n${value.map(encode).join("")}`
    : typeof value === "number"
    ? `:${value}\r\n`
    : `$${value.length}\r\n${value}\r\n`

/** The complete commands of a text, and the rest. */
const parse = (text) => {
  const commands = []
  let rest = text
  for (;;) {
    const head = /^\*(\d+)\r\n/.exec(rest)
    if (head === null) return [commands, rest]
    let at = head[0].length
    const words = []
    while (words.length < Number(head[1])) {
      const size = /^\$(\d+)\r\n/.exec(rest.slice(at, at + 20))
      if (size === null || rest.length < at + size[0].length + Number(size[1]) + 2) return [commands, rest]
      at += size[0].length
      words.push(rest.slice(at, at + Number(size[1])))
      at += Number(size[1]) + 2
    }
    commands.push(words)
    rest = rest.slice(at)
  }
}

const sockets = new Set()
const server = createServer((socket) => {
  sockets.add(socket)
  socket.on("close", () => sockets.delete(socket))
  socket.on("error", () => undefined)
  socket.setNoDelay(true)
  const waiting = []
  let pumping = false
  const pump = async () => {
    if (pumping) return
    pumping = true
    while (waiting.length > 0 && !socket.destroyed) {
      const delay = Atomics.load(figures, DELAY)
      if (delay >= 0 && performance.now() >= waiting[0].at + delay)
        socket.write(encode(answerTo(waiting.shift().words)))
      else await new Promise((resolve) => setTimeout(resolve, 1))
    }
    pumping = false
  }
  let text = ""
  socket.setEncoding("latin1").on("data", (part) => {
    const [commands, rest] = parse(text + part)
    text = rest
    waiting.push(...commands.map((words) => ({ at: performance.now(), words })))
    void pump()
  })
})

const listen = (port) => server.listen(port, "127.0.0.1", () => parentPort.postMessage({ port: server.address().port }))

parentPort.on("message", (wish) => {
  if (wish === "close") {
    for (const socket of sockets) socket.destroy()
    lists.clear()
    server.close(() => parentPort.postMessage({ closed: true }))
  } else listen(wish)
})
