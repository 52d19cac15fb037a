import { parseArgs } from "node:util"
import type { SceneKind } from "./Scene.ts"

export const HELP = `npm run bench -- [options]

Direct messages over HTTP, delivered over sockets that acknowledge them, on a server
and a database of their own; the load is a process of its own beside them. What is
compared is measured in turn, window by window, because a machine changes from minute
to minute: only ratios within one run mean anything. Beside the servers runs the floor:
a bare node:http and ws without a database, and the same rows in the same tables by
one statement for a batch. Prints tables, the ratios, a line of JSON for each, and
where the plot is. Fails if accepted, stored and delivered differ.

What is measured
  --driver pglite|postgres|both  a standalone server, default both; PostgreSQL is
                                 DATABASE_URL, or one of its own (PostgreSQL 18 from npm,
                                 fsync=on)
  --nodes N[,N...]               so many nodes (npm run runner) on PostgreSQL and Redis
                                 (REDIS_URL, or a redis-server of its own), requests and
                                 sockets spread over them, --in-flight and --agents for
                                 each node; beside a standalone server on PostgreSQL
  --balancer                     with --nodes, at most 3: the same again behind HAProxy
                                 with deploy/haproxy.cfg, once with sockets that carry
                                 their keys in the header and once with HELLO
  --apart                        with --nodes: as many servers that share nothing, at the
                                 same time: what this machine alone makes dearer
  --against COMMIT               the same at another commit too, in turn with this one
  --traced SHARE                 the same with traces of this share of all requests too, from
                                 0 to 1, sent to a collector that keeps nothing
  --ejabberd                     ejabberd with its archive on a PostgreSQL of its own, too:
                                 XMPP messages in a ring of --agents, confirmed by stream
                                 management; at full load and --alone
  --stored N                     PostgreSQL only: the same again on a database that is
                                 filled with so many messages before
  --hot                          one agent writes to one other
  --group N                      a group of so many, all with sockets, who write in turn:
                                 time to the last socket at 10 messages/s, and messages
                                 on sockets a second when it is saturated
  --http                         GET /v1/agents/me against the same record from a bare
                                 HttpApi endpoint
  --mcp                          /mcp: agents that wait at once (--idle), their memory beside
                                 that of idle sockets, how soon a wait is answered, and
                                 agentchat_send_message, by key and by access token, beside
                                 POST /v1/messages

How
  --alone                        one message at a time alone
  --half                         half of the greatest load alone, with --repeat 5
  --in-flight N[,N...]           sends under way at once, a window for each; default 64,16
  --repeat N                     all windows so many times; prints medians, least and most;
                                 default 1, with --against 3
  --seconds N                    measured window, default 30, with one message at a time 8;
                                 it lasts longer until --messages are through, four times
                                 as long at most
  --warm-up N                    seconds before a window, default 5
  --messages N                   at least so many in a window, default 100000 with the
                                 greatest load
  --agents N                     agents in the ring, each writing to the next; default 64,
                                 at least 3
  --idle N                       idle sockets to weigh, an agent for each; default 5000
                                 where standalone servers alone are measured, else 0
  --echo on|off                  ECHO_OWN, default on as in the server
  --short                        a try: 5 s, 1000 messages, 64 in flight, 500 idle sockets
  --profile                      profile each server during its first window of each load
                                 and print where its time went
  --plot FILE                    the plot, default bench-TIME.svg in verification/runs
  --help
`

/** Why the arguments make no sense. */
export class Usage extends Error {}

const complain = (text: string): never => {
  throw new Usage(text)
}

const FLAGS = {
  driver: { type: "string" },
  nodes: { type: "string" },
  apart: { type: "boolean", default: false },
  balancer: { type: "boolean", default: false },
  ejabberd: { type: "boolean", default: false },
  against: { type: "string" },
  stored: { type: "string" },
  traced: { type: "string" },
  hot: { type: "boolean", default: false },
  group: { type: "string" },
  http: { type: "boolean", default: false },
  mcp: { type: "boolean", default: false },
  alone: { type: "boolean", default: false },
  half: { type: "boolean", default: false },
  "in-flight": { type: "string" },
  repeat: { type: "string" },
  seconds: { type: "string" },
  "warm-up": { type: "string" },
  messages: { type: "string" },
  agents: { type: "string", default: "64" },
  idle: { type: "string" },
  echo: { type: "string", default: "on" },
  short: { type: "boolean", default: false },
  profile: { type: "boolean", default: false },
  plot: { type: "string" },
  help: { type: "boolean", default: false }
} as const

const parsed = (args: ReadonlyArray<string>) => {
  try {
    return parseArgs({ args: [...args], options: FLAGS }).values
  } catch (error) {
    return complain(error instanceof Error ? error.message : String(error))
  }
}

const number = (name: string, text: string, min: number): number => {
  const value = Number(text)
  return Number.isInteger(value) && value >= min ? value : complain(`--${name} takes a whole number from ${min} on`)
}

const numbers = (name: string, text: string): ReadonlyArray<number> =>
  text.split(",").map((part) => number(name, part, 1))

const oneOf = <const A extends string>(name: string, text: string, ...values: ReadonlyArray<A>): A =>
  values.find((value) => value === text) ?? complain(`--${name} takes ${values.join(", ")}`)

/** Parses the arguments. Throws `Usage`. */
export const optionsOf = (args: ReadonlyArray<string>) => {
  const flags = parsed(args)
  const { against, alone, apart, balancer, ejabberd, half, help, hot, http, mcp, profile, short } = flags
  const nodes = flags.nodes === undefined ? undefined : numbers("nodes", flags.nodes)
  const stored = flags.stored === undefined ? 0 : number("stored", flags.stored, 1)
  const onlyPostgres = nodes !== undefined || stored > 0
  const driver = oneOf("driver", flags.driver ?? (onlyPostgres ? "postgres" : "both"), "pglite", "postgres", "both")
  if (onlyPostgres && driver !== "postgres") complain("--nodes and --stored are for PostgreSQL")
  if (apart && (nodes === undefined || Math.max(...nodes) < 2))
    complain("--apart takes --nodes, with two or more of them")
  if (balancer && (nodes === undefined || Math.max(...nodes) > 3))
    complain("--balancer takes --nodes, at most 3 of them")
  if (hot && flags.group !== undefined) complain("--hot and --group are two measurements")
  if (alone && half) complain("--alone and --half are two measurements")
  const group = flags.group === undefined ? undefined : number("group", flags.group, 3)
  const scene: SceneKind = hot ? "hot" : group !== undefined ? "group" : "ring"
  if (scene !== "ring" && (alone || half)) complain("--alone and --half are for the ring")
  if (ejabberd && (scene !== "ring" || half)) complain("--ejabberd is for the ring at full load, or --alone")
  const traced = flags.traced === undefined ? undefined : Number(flags.traced)
  if (traced !== undefined && !(traced >= 0 && traced <= 1)) complain("--traced takes a number from 0 to 1")
  const plain = scene === "ring" && traced === undefined && nodes === undefined && stored === 0 &&
    against === undefined && !alone && !half
  return {
    help,
    http,
    mcp,
    short,
    profile,
    drivers: driver === "both" ? ["pglite", "postgres"] as const : [driver],
    nodes: nodes ?? [],
    apart,
    balancer,
    ejabberd,
    against,
    stored,
    traced,
    scene,
    /** Agents of the scene. In the ring, agents for each node. */
    agents: scene === "hot" ? 2 : group ?? number("agents", flags.agents, 3),
    windows: alone ? "alone" as const : half ? "half" as const : "all" as const,
    inFlight: numbers(
      "in-flight",
      flags["in-flight"] ?? (short || scene !== "ring" || nodes !== undefined ? "64" : "64,16")
    ),
    repeat: number("repeat", flags.repeat ?? (half ? "5" : against === undefined ? "1" : "3"), 1),
    seconds: number("seconds", flags.seconds ?? (short ? "5" : "30"), 1),
    /** Seconds of each window that is not at full load. */
    secondsAside: number("seconds", flags.seconds ?? (short ? "2" : half ? "30" : "8"), 1),
    warmUp: number("warm-up", flags["warm-up"] ?? (short ? "2" : "5"), 0),
    messages: number("messages", flags.messages ?? (short ? "1000" : scene === "group" ? "1" : "100000"), 1),
    idle: number("idle", flags.idle ?? (!plain ? "0" : short ? "500" : "5000"), 0),
    echo: oneOf("echo", flags.echo, "on", "off"),
    plot: flags.plot
  }
}
