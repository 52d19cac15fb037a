import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { setTimeout as pause } from "node:timers/promises"
import { parseArgs } from "node:util"
import { LocalCluster } from "../../runners/local/LocalCluster.ts"
import { missingRedis } from "../../runners/local/Redis.ts"
import { CHROMIUM, MISSING } from "../../test/pages/Browser.ts"
import { form } from "../../test/signin/Flow.ts"
import { registerAgents, type RegisteredAgent } from "../../test/support/RegisterAgents.ts"
import { install, type Program } from "../hosts/Install.ts"
import { Table } from "../hosts/Table.ts"
import { CONFORMANCE } from "../mcp/Packages.ts"
import { conformance } from "./Conformance.ts"
import { Home } from "./Home.ts"
import { Person } from "./Person.ts"
import { type Client, clients, type Place } from "./Programs.ts"
import { type Connection, connectionsOf, leftOf, refresh, refreshTwice, REPEAT_MS } from "./Tokens.ts"

const suite = { ...CONFORMANCE, name: "the conformance suite" }
type Named = Program & { readonly name: string }
const all: ReadonlyArray<Named> = [...clients, suite]

const HELP = `npm run test:signin -- [options]

Programs of others from npm, unmodified, sign in to an agent with OAuth, against two nodes of this
checkout behind a balancer. The sign-in page is clicked in Chromium. npm fetches the programs when
this runs, into node_modules/.cache/parley-hosts. mcp-remote, MCP's inspector, Codex and opencode
sign in by themselves: their tokens are used, refreshed by two processes at once, revoked, and
reused. MCP's conformance suite tries the authorization server. A program that cannot run on this
machine is skipped by name. Exits with 1 if a check failed.

  --only NAME   this program alone (${all.map(({ program }) => program).join(", ")}); several times for several
  --output      print what each program wrote, also if it ended well
  --help
`

const end = (text: string, code: number): never => {
  console.log(text)
  process.exit(code)
}

const { values: flags } = parseArgs({
  options: {
    only: { type: "string", multiple: true },
    output: { type: "boolean", default: false },
    help: { type: "boolean", default: false }
  }
})
if (flags.help) end(HELP, 0)
const unknown = flags.only?.filter((name) => !all.some(({ program }) => program === name)) ?? []
if (unknown.length > 0) end(`there is no program ${unknown.join(", ")}\n\n${HELP}`, 2)
if (missingRedis !== "") end(`two nodes need a Redis${missingRedis}`, 2)
if (CHROMIUM === undefined) end(`the sign-in page needs a browser${MISSING}`, 2)

const table = new Table()
const nameOf = ({ name, version }: Named): string => `${name} ${version}`

const folder = await mkdtemp(join(tmpdir(), "parley-signin-cluster-"))
const { HOME, PATH, TMPDIR } = process.env
const cluster = await LocalCluster.start({
  nodes: 2,
  port: 0,
  folder,
  env: { HOME, PATH, TMPDIR, LIMITS_REGISTER_PER_HOUR: "100", LIMITS_OAUTH_KEYS_PER_10_MINUTES: "1000" },
  tell: (line) => console.log(line)
})
const { url } = cluster.balancer
const nodes = cluster.nodes.map((node) => node.url)
const person = await Person.start()

/** Tries something of a program. What the program printed is shown if something is wrong. */
const attempt = async <A>(
  program: Named,
  agent: RegisteredAgent,
  folder: string,
  act: (place: Place) => Promise<A>
): Promise<A | undefined> => {
  const home = await Home.make(folder)
  const outputs: Array<string> = []
  const failed = table.counts.failed
  try {
    return await act({ url, agent, home, note: (output) => void outputs.push(output) })
  } catch (error) {
    table.row(nameOf(program), "runs to its end", "failed", String(error))
    return undefined
  } finally {
    if (flags.output || table.counts.failed > failed) console.log(outputs.join("\n"))
    await home.remove()
  }
}

/** Lets the program sign in while the person allows it in the browser. */
const signIn = async (
  client: Client,
  place: Place,
  what: string,
  scope: "read" | "act" = "act"
): Promise<Connection> => {
  const began = performance.now()
  const signingIn = client.signIn(place)
  const asked = await Promise.race([
    place.home.opened(),
    signingIn.then((problem) => Promise.reject(new Error(`it opened no browser: ${problem}`)))
  ])
  place.note(`the browser opens ${asked}`)
  const { asks, status } = await person.allow(asked, place.agent, scope)
  place.note(`the page: ${asks}`)
  const problem = await signingIn || (status >= 400 ? `it answered the browser with ${status}` : "")
  table.check(nameOf(client), what, problem, `${((performance.now() - began) / 1_000).toFixed(1)} s: ${asks}`)
  if (problem !== "") throw new Error("it is not signed in")
  return { clientId: new URL(asked).searchParams.get("client_id") ?? "", ...await place.home.tokens() }
}

/** Two processes of the program find that the access token has expired. Neither may ask the person again. */
const expires = async (client: Client, place: Place): Promise<string> => {
  await place.home.expire()
  const problems = await Promise.all([client.use(place), client.use(place)])
  const asked = await place.home.unasked()
  return problems.find((problem) => problem !== "") ?? (asked > 0 ? `it opened the browser ${asked} times` : "")
}

/** A refresh token that a program has exchanged, and the pair that it got. */
interface Exchanged {
  readonly client: Client
  readonly old: Connection
  readonly current: Connection
}

/** The life of two connections of a program: one is revoked, and the tokens of the other are left for `reuse`. */
const live = async (client: Client, place: Place): Promise<Exchanged> => {
  const name = nameOf(client)
  await client.prepare?.(place)
  const first = await signIn(client, place, "signs in")
  const [listed] = await connectionsOf(url, place.agent)
  const shown = { client_name: listed?.["client_name"], client_host: listed?.["client_host"] }
  table.check(
    name,
    "is listed among the connections",
    JSON.stringify(shown) === JSON.stringify(client.listed) ? "" : JSON.stringify(shown),
    JSON.stringify(shown)
  )
  table.check(name, "uses its tokens", await client.use(place))
  table.check(name, "two processes of it refresh at once", await expires(client, place))
  const stored: Connection = { clientId: first.clientId, ...await place.home.tokens() }
  table.check(name, "has stored the next pair", stored.refresh === first.refresh ? "it has the same refresh token" : "")
  const next = await refreshTwice(nodes, stored)
  table.check(
    name,
    "two processes refresh its tokens at once, at two nodes",
    typeof next === "string" ? next : "",
    "the same pair, accepted by both nodes"
  )
  if (typeof next === "string") throw new Error("its tokens were not refreshed")
  const revoked = await form(`${nodes[0]}/revoke`, { client_id: next.clientId, token: next.refresh })
  table.check(name, "is revoked at both nodes", revoked.status === 200 ? await leftOf(nodes, next) : revoked.text)

  const old = await signIn(client, place, "signs in again after that")
  table.check(name, "refreshes once more", await expires(client, place))
  return { client, old, current: { clientId: old.clientId, ...await place.home.tokens() } }
}

/** Somebody presents a refresh token that was exchanged, after its successor was in use. */
const reuse = async ({ client, current, old }: Exchanged): Promise<void> => {
  const { body, status } = await refresh(nodes[1] ?? "", old)
  const problem = status === 400 && body?.error === "invalid_grant"
    ? await leftOf(nodes, current)
    : `it was answered with ${status}`
  table.check(nameOf(client), "its old refresh token, reused, ends the connection", problem)
}

const chosen = <A extends Program>(from: ReadonlyArray<A>): ReadonlyArray<A> =>
  from.filter(({ program }) => flags.only?.includes(program) ?? true)

/** Installs a program and registers an agent for it. */
const ready = async (program: Named): Promise<readonly [folder: string, agent: RegisteredAgent] | undefined> => {
  console.log(`${nameOf(program)}: npm fetches it unless it is there`)
  const { folder: installed, missing } = await install(program)
  if (missing !== "") table.row(nameOf(program), "everything", "skipped", missing)
  const [agent] = missing === "" ? await registerAgents(url, join(folder, "outbox"), [`for-${program.program}`]) : []
  return agent === undefined ? undefined : [installed, agent]
}

const exchanged: Array<Exchanged> = []
for (const client of chosen(clients)) {
  const [installed, agent] = await ready(client) ?? []
  if (installed === undefined || agent === undefined) continue
  const lived = await attempt(client, agent, installed, (place) => live(client, place))
  if (lived !== undefined) exchanged.push(lived)
  const { write } = client
  if (write === undefined) continue
  await attempt(client, agent, installed, async (place) => {
    await signIn(client, place, "signs in to read alone", "read")
    table.check(
      nameOf(client),
      "is refused to write then, and still reads",
      await write(place) || await client.use(place)
    )
  })
}
const since = performance.now()
for (const program of chosen([suite])) {
  const [installed, agent] = await ready(program) ?? []
  if (installed === undefined || agent === undefined) continue
  await attempt(program, agent, installed, async (place) => {
    for (const { check, problem } of await conformance(place, person)) table.check(nameOf(program), check, problem)
  })
}
if (exchanged.length > 0) await pause(Math.max(0, REPEAT_MS - (performance.now() - since)))
for (const one of exchanged) await reuse(one)

await person.close()
await cluster.stop()
await rm(folder, { recursive: true, force: true })
process.exit(table.print("signin"))
