/**
 * The costs of operations, in microseconds of one processor unless a name says otherwise. verification/RESULTS.md
 * (Prices) has the source of each cost and says which are estimates. `npm run scale -- --measure` measures those of
 * sockets.
 */
export interface Prices {
  /** A message on a node with Redis, between agents whose rows the node has read within the second. */
  readonly message: { readonly server: number; readonly database: number; readonly redis: number }
  /** The additional cost if the rows of the sender, the recipient and the conversation must be read first. */
  readonly stranger: { readonly server: number; readonly database: number }
  /** A push to a socket on another node, both nodes together. */
  readonly push: number
  /** The additional cost of a message in a cluster of several nodes, without its pushes. */
  readonly several: number
  /** A socket that opens, from its key to the end of its backlog. */
  readonly connect: { readonly server: number; readonly database: number; readonly redis: number }
  /** Announcing one socket to one other node: the costs of the announcing and of the receiving node. */
  readonly told: { readonly teller: number; readonly listener: number }
  /** A ping with its pong, which also updates the agent's presence. */
  readonly ping: { readonly server: number; readonly redis: number }
  /** Comparing one socket's cursor with its inbox, every five seconds. */
  readonly compare: { readonly server: number; readonly database: number }
  readonly bytes: {
    /** Memory of a node for a socket with an agent of its own. */
    readonly socket: number
    /** Memory of every other node for the same socket. */
    readonly known: number
    /** Disk space for a stored message of 160 characters. */
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
  bytes: { socket: 20_000, known: 35, message: 1_050 }
}
