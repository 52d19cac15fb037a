/**
 * What things cost, in microseconds of one processor unless a name says otherwise. docs/scale.md has the table with where
 * each comes from, and which of them are estimates: `npm run scale -- --measure` measures those of sockets.
 */
export interface Prices {
  /** A message on a node with Redis, between agents whose rows the node has read within the second. */
  readonly message: { readonly server: number; readonly database: number; readonly redis: number }
  /** What is added where the sender's and the recipient's rows and the conversation must be read first. */
  readonly stranger: { readonly server: number; readonly database: number }
  /** A push to a socket on another node, both nodes together. */
  readonly push: number
  /** What a message costs more on a node of several, apart from its pushes. */
  readonly several: number
  /** A socket that comes with its key, until it has its backlog. */
  readonly connect: { readonly server: number; readonly database: number; readonly redis: number }
  /** Telling one other node of one socket: what the teller and what the told node pays. */
  readonly told: { readonly teller: number; readonly listener: number }
  /** A ping with its pong, which is a sign of life. */
  readonly ping: { readonly server: number; readonly redis: number }
  /** Comparing one socket's cursor with its inbox, every five seconds. */
  readonly compare: { readonly server: number; readonly database: number }
  readonly bytes: {
    /** Of a node, for a socket with an agent of its own. */
    readonly socket: number
    /** Of every other node, for the same. */
    readonly known: number
    /** On disk, for a stored message of 160 characters. */
    readonly message: number
  }
}

export const PRICES: Prices = {
  message: { server: 107, database: 75, redis: 19 },
  stranger: { server: 60, database: 90 },
  push: 25,
  several: 30,
  connect: { server: 700, database: 200, redis: 65 },
  told: { teller: 0.3, listener: 0.6 },
  ping: { server: 80, redis: 20 },
  compare: { server: 2, database: 3 },
  bytes: { socket: 20_000, known: 133, message: 1_050 }
}
