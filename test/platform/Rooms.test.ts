import { assert, describe, it } from "@effect/vitest"
import { globSync, readdirSync, readFileSync } from "node:fs"
import { dirname, join } from "node:path"

/**
 * The wings of `src/`, their rooms, and what each room may import. A room imports only rooms that come before it here, so
 * there is no circle, and a wing imports only itself and the wings before it. The files of `src/` itself put all rooms together, and no
 * room imports them. A new import between two rooms is a decision: it is made here.
 */
const ground = {
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
  /** Nodes: who belongs, who owns what, calls between them, jobs. */
  cluster: ["wire", "platform", "database", "http"],
  /** Bytes of attachments and pictures, on disk or in S3. The key that signs their URLs is in the database. */
  files: ["wire", "platform", "database"]
}

/** Each of these may import every room of the ground, and the rooms that are listed behind it. */
const domain = {
  agents: [],
  /** What direct conversations and groups share. */
  messages: ["agents"],
  auth: ["agents"],
  idempotency: ["auth"],
  /** Who listens where. */
  push: ["agents", "messages"],
  deliveries: ["agents", "messages", "push"],
  avatars: ["agents", "auth", "idempotency"],
  attachments: ["agents", "messages", "auth", "idempotency"],
  groups: ["agents", "messages", "auth", "idempotency", "push", "deliveries", "avatars", "attachments"],
  webhooks: ["agents", "messages", "auth", "idempotency", "deliveries", "groups"],
  presence: ["agents", "auth", "idempotency", "push", "webhooks"],
  conversations: ["agents", "messages", "auth", "idempotency", "push", "deliveries", "attachments", "groups"],
  mutes: ["agents", "auth", "idempotency", "push", "conversations"],
  /** Which of an agent's processes answers. */
  replies: ["messages", "auth"],
  /** Sign in by OAuth: clients, requests of hosts, and the connections that people allow. */
  oauth: ["agents", "auth", "idempotency", "webhooks"],
  enforcement: ["agents", "push", "groups"],
  contacts: ["agents", "messages", "auth", "idempotency", "conversations", "enforcement"],
  directory: ["agents", "auth"],
  search: ["agents", "messages", "auth", "conversations"],
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
const doors = {
  /** What browsers see; the JavaScript in its folders runs there, and imports nothing of the server. */
  pages: ["auth"],
  /** The WebSocket, and waits without one. */
  realtime: ["agents", "messages", "auth", "push", "deliveries", "groups", "presence", "conversations", "enforcement"],
  service: ["auth", "pages", "realtime"],
  /** What operators do and see: one service for each thing, on which the next two rooms render. */
  operator: ["agents", "messages", "push", "enforcement", "registration", "oauth", "service"],
  /** The operators' command line. */
  admin: ["agents", "archives", "operator"],
  /** The operators' API. */
  console: ["agents", "auth", "oauth", "operator", "service"],
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
    "realtime",
    "service"
  ],
  /** Sign in by OAuth: what hosts and the sign-in page call. */
  signin: ["agents", "auth", "oauth", "registration", "pages"],
  /** A2A. */
  a2a: ["agents", "messages", "auth", "attachments", "webhooks", "conversations", "directory", "realtime", "service"]
}

/** Programs that use a server from outside, through its API alone. Each may import the rooms that are listed behind it, and no others. */
const clients = {
  /** The connector: starts a program when mail arrives for an agent. */
  connect: ["wire"]
}

/** More than this, and a folder can no longer be taken in at a glance. */
const MAX_FILES = 20
const ROOT = join(import.meta.dirname, "../..")

const wings: Readonly<Record<string, Readonly<Record<string, ReadonlyArray<string>>>>> = { ground, domain, doors, clients }
const order = Object.keys(wings)
const groundRooms = Object.keys(ground)
const rooms: ReadonlyArray<{ readonly room: string; readonly wing: string }> = Object.entries(wings).flatMap(([wing, table]) =>
  Object.keys(table).map((room) => ({ room, wing })))
const names = rooms.map(({ room }) => room)
const allowed = new Map<string, ReadonlyArray<string>>([
  ...Object.entries(ground),
  ...Object.entries(clients),
  ...Object.entries({ ...domain, ...doors }).map(([room, others]): [string, ReadonlyArray<string>] => [room, [...groundRooms, ...others]])
])

/** The room that a file is in, with its wing: `domain` and `push` for `src/domain/push/AgentChanged.ts`. */
const placeOf = (file: string): { readonly wing: string; readonly room: string } | undefined => {
  const [, wing = "", room = ""] = /^src\/(\w+)\/(\w+)\/./.exec(file) ?? []
  return room === "" ? undefined : { wing, room }
}

interface Import {
  readonly file: string
  /** As it is written. */
  readonly specifier: string
  /** The imported file. */
  readonly target: string
}

/** Every import in these files of a file of this repository. */
const importsIn = (files: string): ReadonlyArray<Import> =>
  globSync(files, { cwd: ROOT }).flatMap((file) =>
    [...readFileSync(join(ROOT, file), "utf8").matchAll(/(?:from|import\(|import) ?"([.#][^"]+)"/g)].map(([, specifier = ""]) =>
      ({ file, specifier, target: specifier.startsWith("#") ? `src/${specifier.slice(1)}.ts` : join(dirname(file), specifier) })))

/** Every import of a room's files that leaves the room. */
const imports = importsIn("src/*/*/**/*.{ts,js}").flatMap(({ file, target }) => {
  const from = placeOf(file)!
  const to = placeOf(target)
  return to?.room === from.room ? [] : [{ file, target, from, to }]
})

const written = ({ file, target }: { readonly file: string; readonly target: string }): string => `${file} imports ${target}`

/** The imports that are part of a circle, or lead from one circle to another. */
const circlesIn = (all: ReadonlyArray<Import>): ReadonlyArray<Import> => {
  const files = new Set(all.map(({ file }) => file))
  const targets = new Set(all.map(({ target }) => target))
  const left = all.filter(({ file, target }) => files.has(target) && targets.has(file))
  return left.length === all.length ? left : circlesIn(left)
}

const foldersIn = (path: string): ReadonlyArray<string> =>
  readdirSync(join(ROOT, path), { withFileTypes: true }).filter((entry) => entry.isDirectory()).map(({ name }) => name)

describe("rooms", () => {
  it("the folders of src/ are the wings, and the folders of a wing are its rooms in the table", () => {
    assert.sameMembers([...foldersIn("src")], order)
    for (const [wing, table] of Object.entries(wings)) {
      assert.sameMembers(readdirSync(join(ROOT, "src", wing)), Object.keys(table), wing)
    }
  })

  it("each imports only what the table allows", () => {
    assert.isAbove(imports.length, 500)
    const refused = imports.filter(({ from, target, to }) =>
      to === undefined ? target !== "package.json" : allowed.get(from.room)?.includes(to.room) !== true)
    assert.deepStrictEqual(refused.map(written), [])
  })

  it("a wing imports only itself and the wings before it", () => {
    const refused = imports.filter(({ from, to }) => to !== undefined && order.indexOf(to.wing) > order.indexOf(from.wing))
    assert.deepStrictEqual(refused.map(written), [])
  })

  it("the table allows only rooms that come before, and what is used", () => {
    for (const [room, others] of allowed) {
      for (const other of others) {
        assert.isBelow(names.indexOf(other), names.indexOf(room), `${room} comes before ${other}`)
        const used = imports.some(({ from, to }) => from.room === room && to?.room === other)
        assert.isTrue(used || (!(room in ground) && other in ground), `${room} does not import ${other}`)
      }
    }
  })

  it("a file of another room is imported by its name, and one of the same room by its path", () => {
    const all = importsIn("{src,test,verification,runners,docs}/**/*.ts").filter(({ target }) => target.endsWith(".ts") && placeOf(target) !== undefined)
    assert.isAbove(all.length, 1500)
    const other = all.filter(({ file, specifier, target }) => specifier.startsWith("#") !== (placeOf(file)?.room !== placeOf(target)?.room))
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

  it(`no folder of a room has more than ${MAX_FILES} files`, () => {
    for (const { room, wing } of rooms) {
      const path = `src/${wing}/${room}`
      for (const folder of [path, ...foldersIn(path).map((name) => `${path}/${name}`)]) {
        assert.isAtMost(readdirSync(join(ROOT, folder)).length, MAX_FILES, folder)
      }
    }
  })
})
