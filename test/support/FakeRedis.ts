// oxlint-disable unicorn/require-post-message-target-origin -- a thread has no origin
import { once } from "node:events"
import { Worker } from "node:worker_threads"

const [DELAY, COMMANDS, REQUESTS] = [0, 1, 2] as const

/**
 * As much of a Redis as rates need, in a thread of its own, so that it answers while the test's event loop
 * stands still. It is slow, hangs, goes away and comes back empty on demand.
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

  /** Commands that decided on rates. */
  get commands(): number {
    return Atomics.load(this.figures, COMMANDS)
  }

  /** Requests that were decided in them. */
  get requests(): number {
    return Atomics.load(this.figures, REQUESTS)
  }

  /** From when it comes until it is answered; `Infinity`: it is not. */
  answerAfter(ms: number): void {
    Atomics.store(this.figures, DELAY, ms === Infinity ? -1 : ms)
  }

  /** It is not there any more, and what it held is lost. */
  async close(): Promise<void> {
    this.worker.postMessage("close")
    await once(this.worker, "message")
  }

  /** It is there, at the same address as before. */
  async launch(): Promise<void> {
    this.worker.postMessage(this.port)
    // What the thread says when it listens.
    const [{ port }] = (await once(this.worker, "message")) as [{ readonly port: number }]
    this.port = port
  }

  async stop(): Promise<void> {
    await this.worker.terminate()
  }
}
