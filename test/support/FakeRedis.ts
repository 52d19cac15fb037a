// oxlint-disable unicorn/require-post-message-target-origin -- a thread has no origin
import { once } from "node:events"
import { Worker } from "node:worker_threads"

const [DELAY, COMMANDS, REQUESTS] = [0, 1, 2] as const

/**
 * A fake Redis with the commands that rates need, in a thread of its own, so that it answers while the test's event
 * loop is blocked. On demand it is slow, does not answer, stops, and starts again without its data.
 */
export class FakeRedis {
  private readonly worker: Worker
  private readonly figures: Int32Array
  private port = 0

  private constructor() {
    const buffer = new SharedArrayBuffer(12)
    this.figures = new Int32Array(buffer)
    this.worker = new Worker(new URL("./FakeRedisServer.js", import.meta.url), { workerData: buffer })
  }

  static async start(): Promise<FakeRedis> {
    const server = new FakeRedis()
    await server.launch()
    return server
  }

  get url(): string {
    return `redis://127.0.0.1:${this.port}`
  }

  /** The number of commands received that decide on rates. */
  get commands(): number {
    return Atomics.load(this.figures, COMMANDS)
  }

  /** How many requests those commands have decided. */
  get requests(): number {
    return Atomics.load(this.figures, REQUESTS)
  }

  /** Sets the milliseconds until it answers a command. With `Infinity`, it does not answer. */
  answerAfter(ms: number): void {
    Atomics.store(this.figures, DELAY, ms === Infinity ? -1 : ms)
  }

  /** Stops listening, and loses its data. */
  async close(): Promise<void> {
    this.worker.postMessage("close")
    await once(this.worker, "message")
  }

  /** Starts listening, on the same port as before. */
  async launch(): Promise<void> {
    this.worker.postMessage(this.port)
    // The message that the thread sends when it listens.
    const [{ port }] = (await once(this.worker, "message")) as [{ readonly port: number }]
    this.port = port
  }

  async stop(): Promise<void> {
    await this.worker.terminate()
  }
}
