import { assert, describe, it } from "@effect/vitest"
import { execFile } from "node:child_process"
import { cp, mkdtemp, readdir, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { promisify } from "node:util"
import { Client } from "pg"
import S3rver from "s3rver"
import { freePort } from "../../runners/local/FreePort.ts"
import { DEBIAN_15, isInstalled } from "../../runners/local/Postgres.ts"
import * as Shapes from "../../test/contract/Shapes.ts"
import { history, inbox, say } from "../../test/contract/Talk.ts"
import { admin } from "../../test/support/Admin.ts"
import { freshDatabase } from "../../test/support/Databases.ts"
import { eventually } from "../../test/support/Eventually.ts"
import { Cluster, missingForNodes } from "../../test/support/Nodes.ts"
import { freshHandle, makeDataDir, newAgent, type Server, startServer } from "../../test/support/Server.ts"
import { missingForDisks, SmallDisk } from "../../test/support/SmallDisk.ts"

const run = promisify(execFile)

/** What is backed up: all its servers stop and start again where they were. */
interface Installation {
  readonly servers: () => ReadonlyArray<Server>
  readonly stop: () => Promise<unknown>
  readonly start: () => Promise<unknown>
  readonly backUp: () => Promise<unknown>
  /** Returns what the command says that moves the numbers on. */
  readonly restore: () => Promise<string>
  readonly end: () => Promise<unknown>
}

const moveOn = async (place: Readonly<Record<string, string>>): Promise<string> => {
  const done = await admin(place, "restored")
  assert.strictEqual(done.code, 0, done.stderr)
  return done.stdout
}

/** A server that runs while it is backed up, and is restored into a folder that is not there any more. */
const running = async (): Promise<Installation> => {
  const dataDir = await makeDataDir()
  const folder = await mkdtemp(join(tmpdir(), "parley-backup-"))
  const file = join(folder, "parley.tar")
  const env = { PORT: String(await freePort()) }
  let server = await startServer({ dataDir, env })
  return {
    servers: () => [server],
    stop: () => server.stop(),
    start: async () => {
      server = await startServer({ dataDir, env })
    },
    backUp: async () => {
      const done = await admin({ DATA_DIR: dataDir }, "backup", file)
      assert.strictEqual(done.code, 0, done.stderr)
    },
    restore: async () => {
      await rm(dataDir, { recursive: true })
      const done = await admin({}, "restore", file, dataDir)
      assert.strictEqual(done.code, 0, done.stderr)
      return done.stdout
    },
    end: async () => {
      await server.stop()
      await Promise.all([dataDir, folder].map((path) => rm(path, { recursive: true, force: true })))
    }
  }
}

/** The backups in a folder, by their names. */
const backupsIn = async (folder: string): Promise<ReadonlyArray<string>> =>
  (await readdir(folder)).filter((name) => /^parley-[\w-]+\.tar$/.test(name)).sort()

/** A server that makes its backups on its own. `place` is BACKUP_TO; `names` are the backups that are there. */
const scheduled = async (
  place: string,
  s3: Readonly<Record<string, string>>,
  names: () => Promise<ReadonlyArray<string>>
): Promise<Installation> => {
  const dataDir = await makeDataDir()
  const env = { PORT: String(await freePort()), BACKUP_EVERY: "1", BACKUP_TO: place, ...s3 }
  const { BACKUP_EVERY: _, ...without } = env
  let server = await startServer({ dataDir, env: without })
  let made = ""
  return {
    servers: () => [server],
    stop: () => server.stop(),
    start: async () => {
      server = await startServer({ dataDir, env: without })
    },
    backUp: async () => {
      await server.stop()
      server = await startServer({ dataDir, env })
      made = await eventually("a backup", async () => (await names()).at(-1))
      await eventually("its check", () => server.stderr.includes(`/${made}: `) || undefined)
    },
    restore: async () => {
      await rm(dataDir, { recursive: true })
      const done = await admin(s3, "restore", `${place}/${made}`, dataDir)
      assert.strictEqual(done.code, 0, done.stderr)
      return done.stdout
    },
    end: async () => {
      await server.stop()
      await rm(dataDir, { recursive: true, force: true })
    }
  }
}

/** A folder of a server that is stopped for its backup. */
const standalone = async (): Promise<Installation> => {
  const dataDir = await makeDataDir()
  const copy = await mkdtemp(join(tmpdir(), "parley-backup-"))
  const env = { PORT: String(await freePort()) }
  let server = await startServer({ dataDir, env })
  const stop = () => server.stop()
  const start = async () => {
    server = await startServer({ dataDir, env })
  }
  return {
    servers: () => [server],
    stop,
    start,
    backUp: async () => {
      await stop()
      await cp(dataDir, copy, { recursive: true })
      await start()
    },
    restore: async () => {
      await rm(dataDir, { recursive: true })
      await cp(copy, dataDir, { recursive: true })
      return moveOn({ DATA_DIR: dataDir })
    },
    end: async () => {
      await stop()
      await Promise.all([dataDir, copy].map((folder) => rm(folder, { recursive: true, force: true })))
    }
  }
}

/** The URL of an empty database that belongs to a role without any right but that to create databases. */
const ofOrdinaryRole = async (): Promise<string> => {
  const url = new URL(await freshDatabase(15, "empty"))
  const database = url.pathname.slice(1)
  const role = `ordinary_${database}`
  const client = new Client(url.href)
  await client.connect()
  await client.query(`CREATE ROLE "${role}" LOGIN CREATEDB`)
  await client.query(`ALTER DATABASE "${database}" OWNER TO "${role}"`)
  await client.end()
  url.username = role
  return url.href
}

/** Two nodes, whose database is dumped while they run, and restored beside the old one as docs/operations.md says. */
const nodes = async (): Promise<Installation> => {
  const database = await ofOrdinaryRole()
  const name = new URL(database).pathname.slice(1)
  const folder = await mkdtemp(join(tmpdir(), "parley-backup-"))
  const file = join(folder, "parley.dump")
  const cluster = await Cluster.start(2, { DATABASE_URL: database })
  const stop = () => Promise.all(cluster.nodes.map((node) => node.stop()))
  /** The same role, connected to another database. */
  const at = (other: string): string => Object.assign(new URL(database), { pathname: `/${other}` }).href
  const query = async (url: string, ...statements: ReadonlyArray<string>) => {
    const client = new Client(url)
    await client.connect()
    for (const statement of statements) await client.query(statement)
    await client.end()
  }
  return {
    servers: () => cluster.nodes,
    stop,
    start: () => Promise.all(cluster.nodes.map((node) => cluster.add(node))),
    backUp: () => run(`${DEBIAN_15}/pg_dump`, ["--format=custom", `--file=${file}`, database]),
    restore: async () => {
      const restored = `${name}_restored`
      await query(database, `CREATE DATABASE "${restored}"`)
      await run(`${DEBIAN_15}/pg_restore`, [
        "--exit-on-error",
        "--no-owner",
        "--no-privileges",
        `--dbname=${at(restored)}`,
        file
      ])
      const said = await moveOn({ DATABASE_URL: at(restored) })
      await query(
        at("postgres"),
        `ALTER DATABASE "${name}" RENAME TO "${name}_before"`,
        `ALTER DATABASE "${restored}" RENAME TO "${name}"`,
        `DROP DATABASE "${name}_before"`
      )
      return said
    },
    end: async () => {
      await cluster.stop()
      await rm(folder, { recursive: true, force: true })
    }
  }
}

const scenario = async (install: () => Promise<Installation>): Promise<void> => {
  const it = await install()
  try {
    const at = (i: number): Server => it.servers()[i % it.servers().length]!
    const alice = await newAgent(at(0), "alice")
    const bob = await newAgent(at(1), "bob")
    const carol = await newAgent(at(0), "carol")
    /** Answers name the ports, which stay. */
    const tell = async (
      times: number
    ): Promise<ReadonlyArray<{ readonly toBob: Shapes.Message; readonly toCarol: Shapes.Message }>> => {
      const told = []
      for (let i = 0; i < times; i++) told.push({ toBob: await say(alice, bob), toCarol: await say(alice, carol) })
      return told
    }
    await say(bob, alice)
    await say(carol, alice)

    const heard: Array<string> = []
    const socket = bob.realtime({ onSequenceGap: () => undefined })
    socket.on("message.new", (message) => {
      heard.push((message.payload as { readonly id: string }).id)
    })
    await socket.connect()
    const isHeard = (messages: ReadonlyArray<{ readonly toBob: Shapes.Message }>) =>
      eventually("what bob hears", () => messages.every(({ toBob }) => heard.includes(toBob.id)) || undefined, 30_000)

    const before = await tell(5)
    await isHeard(before)
    const rotated = freshHandle("note")
    await it.backUp()
    const lost = await tell(7)
    await isHeard(lost)
    const cursor = (await inbox(carol)).at(-1)?.delivery_id ?? ""
    ;(await carol.http.patch(`/v1/agents/${carol.handle}`, { description: rotated })).ok(200, Shapes.Agent)

    await it.stop()
    assert.match(await it.restore(), /^2 conversations and 3 inboxes /m)
    await it.start()

    // What came after the backup never was.
    assert.isNull((await carol.http.get("/v1/agents/me")).ok(200, Shapes.Agent).description)
    assert.deepStrictEqual((await inbox(carol)).map(({ id }) => id), before.map(({ toCarol }) => toCarol.id))
    await eventually("bob's socket", async () => {
      const { text } = await at(0).http().get("/internal/metrics")
      const others = await at(1).http().get("/internal/metrics")
      return /^sockets_open(?:\{[^}]*\})? [1-9]/m.test(`${text}\n${others.text}`) || undefined
    }, 60_000)

    const after = await tell(4)
    await isHeard(after)
    assert.deepStrictEqual(
      heard,
      [...before, ...lost, ...after].map(({ toBob }) => toBob.id),
      "each once, in its order"
    )
    // The cursor of a client that outlived the restore shows what is new, and covers none of it.
    const since = (await carol.http.get(`/v1/messages/sync?after=${cursor}`)).ok(200, Shapes.SyncRows)
    assert.deepStrictEqual(since.map(({ id }) => id), after.map(({ toCarol }) => toCarol.id))
    const acked = (await carol.http.post("/v1/messages/sync/ack", { last_delivery_id: cursor })).ok(200, Shapes.Acked)
    assert.strictEqual(acked.acked, before.length)
    assert.deepStrictEqual((await inbox(carol)).map(({ id }) => id), after.map(({ toCarol }) => toCarol.id))
    // The numbers of lost messages are nobody's.
    const seqs = (await history(carol, after[0]!.toCarol.conversation_id)).map(({ seq }) => seq).sort((a, b) => a - b)
    const [first] = after.map(({ toCarol }) => toCarol.seq) as [number]
    assert.deepStrictEqual(seqs, [1, 2, 3, 4, 5, 6, first, first + 1, first + 2, first + 3])
    assert.isAbove(first, Math.max(...lost.map(({ toCarol }) => toCarol.seq)))
    await socket.disconnect()
  } finally {
    await it.end()
  }
}

describe("a restore from backup", { timeout: 300_000 }, () => {
  it("of a standalone server's folder assigns no number twice, and clients that ran on get new messages", () =>
    scenario(standalone))

  it("of a standalone server that is backed up while it runs, by one command, does the same", () => scenario(running))

  it("of a backup that the server made on its own, in a folder, does the same", async () => {
    const folder = await mkdtemp(join(tmpdir(), "parley-backups-"))
    try {
      await scenario(() => scheduled(folder, {}, () => backupsIn(folder)))
    } finally {
      await rm(folder, { recursive: true, force: true })
    }
  })

  it("of a backup that the server made on its own, in S3, does the same", async () => {
    const folder = await mkdtemp(join(tmpdir(), "parley-backups-"))
    const store = new S3rver({
      port: 0,
      address: "127.0.0.1",
      silent: true,
      directory: folder,
      configureBuckets: [{ name: "backups" }]
    })
    const { port } = await store.run()
    const s3 = {
      S3_ENDPOINT: `http://127.0.0.1:${port}`,
      S3_ACCESS_KEY_ID: "S3RVER",
      S3_SECRET_ACCESS_KEY: "S3RVER",
      S3_FORCE_PATH_STYLE: "on"
    }
    const names = async () => {
      const text = await (await fetch(`${s3.S3_ENDPOINT}/backups?list-type=2&prefix=nightly/`)).text()
      return Array.from(text.matchAll(/<Key>nightly\/(parley-[\w-]+\.tar)<\/Key>/g), ([, name]) => name!).sort()
    }
    try {
      await scenario(() => scheduled("s3://backups/nightly", s3, names))
    } finally {
      await store.close()
      await rm(folder, { recursive: true, force: true })
    }
  })

  const missing = missingForNodes !== ""
    ? missingForNodes
    : isInstalled(15)
    ? ""
    : " (skipped: needs pg_dump and PostgreSQL 15: apt-get install postgresql)"

  it.skipIf(missing !== "")(
    `of a cluster's database, dumped while it runs, does the same${missing}`,
    () => scenario(nodes)
  )
})

describe("a backup that the server makes on its own", { timeout: 300_000 }, () => {
  it("is begun anew after a server that was killed while it made one, and nothing is left of the first", async () => {
    const folder = await mkdtemp(join(tmpdir(), "parley-backups-"))
    const dataDir = await makeDataDir()
    try {
      const env = { BACKUP_EVERY: "1", BACKUP_TO: folder }
      const killed = await startServer({ dataDir, env })
      await eventually("the beginning of a backup", async () => (await readdir(folder)).length > 0 || undefined)
      await killed.kill()
      assert.deepStrictEqual(await backupsIn(folder), [], killed.output)
      const server = await startServer({ dataDir, env })
      await eventually("a backup", async () => (await backupsIn(folder)).length === 1 || undefined)
      assert.deepStrictEqual(await readdir(folder), await backupsIn(folder))
      await server.stop()
    } finally {
      for (const made of [dataDir, folder]) await rm(made, { recursive: true, force: true })
    }
  })

  it.skipIf(missingForDisks !== "")(
    `fails on a full disk with the reason, and the server goes on${missingForDisks}`,
    async () => {
      const disk = new SmallDisk(8)
      const dataDir = await makeDataDir()
      const server = await startServer({ dataDir, env: { BACKUP_EVERY: "1", BACKUP_TO: disk.folder } })
      try {
        await eventually("the failure", () => server.stderr.match(/The backup in .* failed.* has 9 MB free/)?.[0])
        assert.deepStrictEqual(await readdir(disk.folder), [])
        const [ada, bob] = [await newAgent(server, "ada"), await newAgent(server, "bob")]
        await say(ada, bob)
        assert.strictEqual((await fetch(`${server.url}/v1/ready`)).status, 200)
      } finally {
        await server.stop()
        disk.unmount()
        await rm(dataDir, { recursive: true, force: true })
      }
    }
  )
})
