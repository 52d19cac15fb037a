import { assert, describe, it } from "@effect/vitest"
import { readdirSync, readFileSync, statSync } from "node:fs"
import { dirname, join, normalize, relative } from "node:path"

/**
 * The folders of `src/`, from the ground up, and what each may import. A room imports
 * only rooms that stand above it here, so there is no circle; the files of `src/` itself
 * put all rooms together, and no room imports them. A new import between two rooms is a
 * decision: it is made here.
 */
const ground = {
  /** The contract's vocabulary: errors, texts, pages. */
  wire: [],
  /** What a process has: settings, ids, clocks, log and metrics, Redis, mail. */
  platform: [],
  /** PostgreSQL and PGlite, batches of commands in one commit, migrations. */
  database: ["wire", "platform"],
  /** Listening, answers, the client's address. */
  http: ["wire", "platform"],
  /** Sliding windows, in memory and shared through Redis. */
  rates: ["wire", "platform", "http"],
  /** Nodes: who belongs, who owns what, calls between them, jobs. */
  cluster: ["wire", "platform", "database", "http"],
  /** Bytes of attachments and pictures, on disk or in S3. */
  files: ["wire", "platform"]
}

/** Each of these may import every room of the ground, and the domain rooms that are listed behind it. */
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
  enforcement: ["agents", "push", "groups"],
  contacts: ["agents", "messages", "auth", "idempotency", "conversations", "enforcement"],
  directory: ["agents", "auth"],
  registration: ["agents", "auth"],
  /** What browsers see; the JavaScript in its folders runs there, and imports nothing of the server. */
  pages: ["auth"],
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
    "contacts",
    "registration"
  ],
  /** The doors: sockets, operators, the pages about the service, MCP. */
  realtime: ["agents", "messages", "auth", "push", "deliveries", "groups", "presence", "conversations", "enforcement"],
  /** An agent's data, and a server's, in a file. */
  archives: [],
  operator: ["agents", "enforcement", "registration", "archives"],
  service: ["auth", "pages", "realtime"],
  /** The operators' API. */
  console: ["agents", "auth", "push", "webhooks", "enforcement", "operator", "service"],
  mcp: [
    "agents",
    "messages",
    "auth",
    "deliveries",
    "attachments",
    "groups",
    "presence",
    "conversations",
    "mutes",
    "contacts",
    "directory",
    "realtime",
    "service"
  ],
  /** A2A. */
  a2a: ["agents", "messages", "auth", "attachments", "webhooks", "conversations", "directory", "realtime", "service"]
}

/** More than this, and a folder can no longer be taken in at a glance. */
const MAX_FILES = 20
const source = new URL("../../src", import.meta.url).pathname

const groundRooms = Object.keys(ground)
const rooms: ReadonlyArray<string> = [...groundRooms, ...Object.keys(domain)]
const allowed = new Map<string, ReadonlyArray<string>>([
  ...Object.entries(ground),
  ...Object.entries(domain).map(([room, others]): [string, ReadonlyArray<string>] => [room, [...groundRooms, ...others]])
])

/** Every relative import of a room's files that leaves the room. */
const imports = rooms.flatMap((room) =>
  readdirSync(join(source, room), { encoding: "utf8", recursive: true }).filter((file) => /\.(ts|js)$/.test(file)).flatMap((file) =>
    [...readFileSync(join(source, room, file), "utf8").matchAll(/(?:from|import\(|import) ?"(\.\.?\/[^"]+)"/g)].flatMap((match) => {
      const target = normalize(join(source, room, dirname(file), match[1] ?? ""))
      // A folder within a room is the room.
      const inside = relative(source, dirname(target))
      const to = inside.startsWith("..") ? inside : inside.split("/")[0] ?? ""
      return to === room ? [] : [{ file: `${room}/${file}`, room, to, target: relative(source, target) }]
    })
  )
)

describe("rooms", () => {
  it("all folders of src/ are in the table, and nothing else is", () => {
    const folders = readdirSync(source).filter((name) => statSync(join(source, name)).isDirectory())
    assert.deepStrictEqual([...folders].toSorted(), [...rooms].toSorted())
  })

  it("each imports only what the table allows", () => {
    assert.isAbove(imports.length, 500)
    const refused = imports.filter(({ room, to, target }) =>
      to.startsWith("..") ? target !== "../package.json" : allowed.get(room)?.includes(to) !== true
    )
    assert.deepStrictEqual(refused.map(({ file, target }) => `${file} imports ${target}`), [])
  })

  it("the table allows only rooms that stand above, and what is used", () => {
    for (const [room, others] of allowed) {
      for (const other of others) {
        assert.isBelow(rooms.indexOf(other), rooms.indexOf(room), `${room} stands above ${other}`)
        const used = imports.some((edge) => edge.room === room && edge.to === other)
        assert.isTrue(used || (room in domain && other in ground), `${room} does not import ${other}`)
      }
    }
  })

  it(`no folder has more than ${MAX_FILES} files`, () => {
    const folders = rooms.flatMap((room) => [
      room,
      ...readdirSync(join(source, room), { withFileTypes: true }).filter((entry) => entry.isDirectory()).map(({ name }) => join(room, name))
    ])
    for (const folder of folders) assert.isAtMost(readdirSync(join(source, folder)).length, MAX_FILES, folder)
  })
})
