import { endpointsOf } from "#infrastructure/http/RouteTable"
import { ConsoleApi } from "#interfaces/console/ConsoleApi"
import { assert, describe, it } from "@effect/vitest"
import { globSync, readdirSync, readFileSync } from "node:fs"
import { dirname, join } from "node:path"
import { Api } from "../../src/Api.ts"

/**
 * The layers of `src/`, their modules, and what each module may import. A module imports only modules that come before
 * it here, so there is no circle, and a layer imports only itself and the layers before it. The files of `src/` itself
 * put all modules together, and no module imports them. A new import between two modules is a decision: it is made
 * here.
 */
const infrastructure = {
  /** The contract's vocabulary: errors, texts, pages. */
  wire: [],
  /** What a process has: settings, ids, clocks, log and metrics, Redis, mail. */
  platform: [],
  /** PostgreSQL and PGlite, batches of commands in one commit, migrations, secret keys. */
  database: ["wire", "platform"],
  /** Listening, answers, the client's address. */
  http: ["wire", "platform"],
  /** Sliding windows, in memory and shared through Redis. */
  rates: ["wire", "platform", "http"],
  /** Slots: how many large answers, transfers and searches of one peer run at once. */
  concurrency: ["wire", "platform", "http"],
  /** Nodes: who belongs, who owns what, calls between them, jobs. */
  cluster: ["wire", "platform", "database", "http"],
  /** Bytes of attachments and pictures, on disk or in S3. The key that signs their URLs is in the database. */
  files: ["wire", "platform", "database"]
}

/** Each of these may import every module of the infrastructure, and the modules that are listed behind it. */
const domain = {
  agents: [],
  /** The model of a message, its tables, and what webhooks learn of it. */
  messages: [],
  /** Who takes part in which conversation, for the modules that show messages. */
  memberships: ["agents", "messages"],
  /** The queue in which the owner of a conversation decides and commits sends, the same for both kinds. */
  sending: ["agents", "messages", "memberships"],
  auth: ["agents"],
  idempotency: ["auth"],
  /** Who listens where. */
  push: ["agents", "messages", "sending"],
  deliveries: ["agents", "messages", "sending", "memberships", "push"],
  avatars: ["agents", "auth", "idempotency"],
  attachments: ["agents", "sending", "memberships", "auth", "idempotency"],
  direct: ["agents", "messages", "sending", "memberships", "push", "deliveries", "attachments"],
  groups: [
    "agents",
    "messages",
    "sending",
    "memberships",
    "auth",
    "idempotency",
    "push",
    "deliveries",
    "avatars",
    "attachments"
  ],
  webhooks: ["agents", "messages", "memberships", "auth", "idempotency", "deliveries", "groups"],
  presence: ["agents", "auth", "idempotency", "push", "webhooks"],
  /** Reactions to messages of both kinds. */
  reactions: ["messages", "sending", "auth", "idempotency", "push"],
  /** Both kinds: sends to either, reads, and what an agent hides. */
  conversations: [
    "agents",
    "messages",
    "sending",
    "memberships",
    "auth",
    "idempotency",
    "push",
    "deliveries",
    "direct",
    "groups",
    "reactions"
  ],
  mutes: ["agents", "auth", "idempotency", "push", "conversations"],
  /** Which of an agent's processes answers. */
  replies: ["messages", "auth"],
  /** OAuth sign-in: clients, requests of hosts, and the connections that people allow. */
  oauth: ["agents", "auth", "idempotency"],
  enforcement: ["agents", "push", "groups"],
  contacts: ["agents", "messages", "auth", "idempotency", "conversations", "enforcement"],
  directory: ["agents", "auth"],
  search: ["agents", "messages", "memberships", "auth", "conversations"],
  registration: ["agents", "auth"],
  /** An agent's own account, and all that ends with it. */
  accounts: [
    "agents",
    "auth",
    "idempotency",
    "deliveries",
    "groups",
    "webhooks",
    "presence",
    "mutes",
    "replies",
    "oauth",
    "contacts",
    "registration"
  ],
  /** An agent's data, and a server's, in a file. */
  archives: []
}

/** The ways into a server. The same holds for them. */
const interfaces = {
  /** What browsers see; the JavaScript in its folders runs there, and imports nothing of the server. */
  pages: ["auth"],
  /** The WebSocket, and waits without one. */
  realtime: [
    "agents",
    "messages",
    "memberships",
    "auth",
    "push",
    "deliveries",
    "groups",
    "presence",
    "conversations",
    "enforcement"
  ],
  service: ["auth", "pages", "realtime"],
  /** What operators do and see: one service for each thing, on which the API renders. */
  operator: [
    "agents",
    "messages",
    "push",
    "direct",
    "groups",
    "conversations",
    "enforcement",
    "registration",
    "oauth",
    "archives"
  ],
  /** The operators' API. */
  console: ["agents", "messages", "auth", "groups", "registration", "oauth", "archives", "operator"],
  /** The operators' command line, and the Unix socket on which it calls their API. */
  admin: ["archives", "operator", "console"],
  mcp: [
    "agents",
    "messages",
    "auth",
    "idempotency",
    "push",
    "deliveries",
    "attachments",
    "groups",
    "webhooks",
    "presence",
    "conversations",
    "mutes",
    "replies",
    "contacts",
    "directory",
    "search",
    "oauth",
    "realtime"
  ],
  /** OAuth sign-in: what hosts and the sign-in page call. */
  signin: ["agents", "auth", "oauth", "registration", "pages"],
  /** A2A. */
  a2a: [
    "agents",
    "messages",
    "auth",
    "attachments",
    "webhooks",
    "direct",
    "conversations",
    "directory",
    "realtime"
  ]
}

/**
 * Programs that use a server from outside, through its API alone. Each may import the modules that are listed behind
 * it, and no others.
 */
const clients = {
  /** The connector: starts a program when mail arrives for an agent. */
  connect: ["wire", "platform"]
}

const ROOT = join(import.meta.dirname, "../..")

const layers: Readonly<Record<string, Readonly<Record<string, ReadonlyArray<string>>>>> = {
  infrastructure,
  domain,
  interfaces,
  clients
}
const order = Object.keys(layers)
const infrastructureModules = Object.keys(infrastructure)
const modules: ReadonlyArray<{ readonly module: string; readonly layer: string }> = Object.entries(layers).flatMap((
  [layer, table]
) => Object.keys(table).map((module) => ({ module, layer })))
const names = modules.map(({ module }) => module)
const allowed = new Map<string, ReadonlyArray<string>>([
  ...Object.entries(infrastructure),
  ...Object.entries(clients),
  ...Object.entries({ ...domain, ...interfaces }).map((
    [module, others]
  ): [string, ReadonlyArray<string>] => [module, [...infrastructureModules, ...others]])
])

/** The module that a file is in, with its layer: `domain` and `push` for `src/domain/push/AgentChanged.ts`. */
const placeOf = (file: string): { readonly layer: string; readonly module: string } | undefined => {
  const [, layer = "", module = ""] = /^src\/(\w+)\/(\w+)\/./.exec(file) ?? []
  return module === "" ? undefined : { layer, module }
}

interface Import {
  readonly file: string
  /** As it is written. */
  readonly specifier: string
  /** The imported file, or the name of the package. */
  readonly target: string
}

/** The file of this repository that is imported, or else the name of the package. */
const targetOf = (file: string, specifier: string): string =>
  specifier.startsWith("#")
    ? `src/${specifier.slice(1)}.ts`
    : specifier.startsWith(".")
    ? join(dirname(file), specifier)
    : specifier

/** The imports in this file. The group of the pattern is the specifier. */
const importsOf = (file: string, pattern: RegExp): ReadonlyArray<Import> =>
  [...readFileSync(join(ROOT, file), "utf8").matchAll(pattern)].map(([, specifier = ""]) => ({
    file,
    specifier,
    target: targetOf(file, specifier)
  }))

/** Every import in these files of a file of this repository. */
const importsIn = (files: string): ReadonlyArray<Import> =>
  globSync(files, { cwd: ROOT }).flatMap((file) => importsOf(file, /(?:from|import\(|import) ?"([.#][^"]+)"/g))

/** Every import, of files and packages, that happens when this file is loaded. Types are not loaded. */
const loadedWith = (first: string): ReadonlyArray<Import> => {
  const files = new Set([first])
  const all: Array<Import> = []
  for (const file of files) {
    for (const one of importsOf(file, /^import (?!type )(?:[^"]* from )?"([^"]+)"/gm)) {
      all.push(one)
      if (one.target !== one.specifier) files.add(one.target)
    }
  }
  return all
}

/** Every import of a module's files that leaves the module. */
const imports = importsIn("src/*/*/**/*.{ts,js}").flatMap(({ file, target }) => {
  const from = placeOf(file)!
  const to = placeOf(target)
  return to?.module === from.module ? [] : [{ file, target, from, to }]
})

const written = ({ file, target }: { readonly file: string; readonly target: string }): string =>
  `${file} imports ${target}`

/** The imports that are part of a circle, or lead from one circle to another. */
const circlesIn = (all: ReadonlyArray<Import>): ReadonlyArray<Import> => {
  const files = new Set(all.map(({ file }) => file))
  const targets = new Set(all.map(({ target }) => target))
  const left = all.filter(({ file, target }) => files.has(target) && targets.has(file))
  return left.length === all.length ? left : circlesIn(left)
}

const foldersIn = (path: string): ReadonlyArray<string> =>
  readdirSync(join(ROOT, path), { withFileTypes: true }).filter((entry) => entry.isDirectory()).map(({ name }) => name)

describe("modules", () => {
  it("the folders of src/ are the layers, and the folders of a layer are its modules in the table", () => {
    assert.sameMembers([...foldersIn("src")], order)
    for (const [layer, table] of Object.entries(layers)) {
      assert.sameMembers(readdirSync(join(ROOT, "src", layer)), Object.keys(table), layer)
    }
  })

  it("each imports only what the table allows", () => {
    assert.isAbove(imports.length, 500)
    const refused = imports.filter(({ from, target, to }) =>
      to === undefined ? target !== "package.json" : allowed.get(from.module)?.includes(to.module) !== true
    )
    assert.deepStrictEqual(refused.map(written), [])
  })

  it("a layer imports only itself and the layers before it", () => {
    const refused = imports.filter(({ from, to }) =>
      to !== undefined && order.indexOf(to.layer) > order.indexOf(from.layer)
    )
    assert.deepStrictEqual(refused.map(written), [])
  })

  it("the table allows only modules that come before, and what is used", () => {
    for (const [module, others] of allowed) {
      for (const other of others) {
        assert.isBelow(names.indexOf(other), names.indexOf(module), `${module} comes before ${other}`)
        const used = imports.some(({ from, to }) => from.module === module && to?.module === other)
        assert.isTrue(
          used || (!(module in infrastructure) && other in infrastructure),
          `${module} does not import ${other}`
        )
      }
    }
  })

  it("a file of another module is imported by its name, and one of the same module by its path", () => {
    const all = importsIn("{src,test,verification,runners,docs}/**/*.ts").filter(({ target }) =>
      target.endsWith(".ts") && placeOf(target) !== undefined
    )
    assert.isAbove(all.length, 1500)
    const other = all.filter(({ file, specifier, target }) =>
      specifier.startsWith("#") !== (placeOf(file)?.module !== placeOf(target)?.module)
    )
    assert.deepStrictEqual(other.map(written), [])
  })

  it("no files import each other in a circle, types included", () => {
    const line = (...files: ReadonlyArray<string>) =>
      files.slice(1).map((target, i): Import => ({ file: files[i]!, specifier: `./${target}`, target }))
    assert.deepStrictEqual(circlesIn(line("a", "b", "c", "b", "d")).map(written), ["b imports c", "c imports b"])
    const all = importsIn("src/**/*.{ts,js}")
    assert.isAbove(all.length, 1500)
    assert.deepStrictEqual(circlesIn(all).map(written), [])
  })

  it("the help of the commands loads no database, no cluster, no remote procedures and no HTTP API", () => {
    const ofServer = ({ target }: Import) => /^effect\/(?:cluster|rpc|sql|http-api)(?:\/|$)|Repo\.ts$/.test(target)
    const loaded = loadedWith("runners/CommandLine.ts")
    assert.include(loaded.map(({ target }) => target), "src/interfaces/admin/AgentsCli.ts")
    assert.deepStrictEqual(loaded.filter(ofServer).map(written), [])
    // The services of a command that runs load them.
    const names = new Set(loadedWith("runners/AdminClient.ts").filter(ofServer).map(({ target }) => target))
    assert.includeMembers([...names], ["effect/cluster", "effect/sql", "effect/http-api"])
  })

  it("the infrastructure names no path of the server", () => {
    const paths = [...endpointsOf(Api), ...endpointsOf(ConsoleApi)].map(({ path }) => path.split("/").slice(1))
    const firstWords = new Set([...paths.map(([first = ""]) => first), "mcp", "a2a", "oauth"])
    const words = new Set([...paths.flat(), ...firstWords])
    assert.isTrue(firstWords.has("v1") && words.has("avatar"))
    // A path is a whole text, or it follows a value in a template.
    const named = globSync("src/infrastructure/**/*.ts", { cwd: ROOT }).flatMap((file) =>
      [...readFileSync(join(ROOT, file), "utf8").matchAll(/(["}])(\/([a-z][\w-]*)[\w/:-]*)/g)]
        .filter(([, before, , word = ""]) => (before === "}" ? firstWords : words).has(word))
        .map(([, , path]) => `${file}: ${path}`)
    )
    // This path is the collector's.
    assert.deepStrictEqual(named, ["src/infrastructure/platform/TraceExport.ts: /v1/traces"])
  })
})
