import { assert, describe, it } from "@effect/vitest"
import { execFile } from "node:child_process"
import { cp, mkdtemp, readdir, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { delimiter, join } from "node:path"
import { promisify } from "node:util"
import { Client } from "pg"
import S3rver from "s3rver"
import { freePort } from "../../runners/local/FreePort.ts"
import { DEBIAN_15, isInstalled, PostgresServer } from "../../runners/local/Postgres.ts"
import * as Shapes from "../../test/contract/Shapes.ts"
import { history, inbox, say } from "../../test/contract/Talk.ts"
import { parse, ROOT } from "../../test/documents/Markdown.ts"
import { admin } from "../../test/support/Admin.ts"
import { eventually } from "../../test/support/Eventually.ts"
import { Cluster, missingForNodes } from "../../test/support/Nodes.ts"
import {
  freshHandle,
  makeDataDir,
  newAgent,
  PROGRAM,
  programEnv,
  type Server,
  startServer
} from "../../test/support/Server.ts"
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

const OPERATIONS = parse("docs/operations.md")

/** The block of docs/operations.md with this beginning. */
const blockOf = (beginning: string): string =>
  OPERATIONS.blocks.find(({ text }) => text.startsWith(beginning))?.text ??
    assert.fail(`no block of docs/operations.md begins with ${beginning}`)

/** Runs statements in the database of this URL. */
const query = async (url: string, ...statements: ReadonlyArray<string>): Promise<void> => {
  const client = new Client(url)
  await client.connect()
  try {
    for (const statement of statements) await client.query(statement)
  } finally {
    await client.end()
  }
}

/**
 * Starts a PostgreSQL in which a role with only these attributes owns the database. Both are called `parley`, as in
 * docs/operations.md. `paste` runs commands in a folder in which `npm run admin` works, and returns their output.
 */
const postgresOfParley = async (attributes: "LOGIN" | "LOGIN CREATEDB") => {
  const postgres = await PostgresServer.start(15)
  const folder = await mkdtemp(join(tmpdir(), "parley-backup-"))
  await writeFile(join(folder, "package.json"), JSON.stringify({ scripts: { admin: `exec node ${PROGRAM} admin` } }))
  await query(postgres.url(), `CREATE ROLE parley ${attributes}`, "CREATE DATABASE parley OWNER parley")
  const urlOf = (database: string, role = "parley"): string =>
    Object.assign(new URL(postgres.url(database)), { username: role }).href
  return {
    urlOf,
    paste: async (commands: string, env: Readonly<Record<string, string>> = {}): Promise<string> => {
      const { stdout } = await run("sh", ["-euc", commands], {
        cwd: folder,
        env: {
          ...programEnv(),
          PATH: [DEBIAN_15, join(ROOT, "node_modules/.bin"), process.env["PATH"]].join(delimiter),
          npm_config_update_notifier: "false",
          DATABASE_URL: urlOf("parley"),
          ...env
        }
      })
      return stdout
    },
    end: async () => {
      await postgres.stop()
      await rm(folder, { recursive: true, force: true })
    }
  }
}

/** Two nodes, whose database is dumped while they run, and restored by the commands of docs/operations.md. */
const nodes = async (): Promise<Installation> => {
  const { end, paste, urlOf } = await postgresOfParley("LOGIN CREATEDB")
  const cluster = await Cluster.start(2, { DATABASE_URL: urlOf("parley") })
  let restored = ""
  return {
    servers: () => cluster.nodes,
    stop: async () => {
      // The nodes still run while the new database is filled.
      const printed = await paste(`${blockOf("NEW=")}\nprintf '%s' "$NEW"`)
      restored = printed.split("\n").at(-1) ?? ""
      assert.strictEqual(restored, urlOf("parley_restored"))
      await Promise.all(cluster.nodes.map((node) => node.stop()))
    },
    start: () => Promise.all(cluster.nodes.map((node) => cluster.add(node, { DATABASE_URL: restored }))),
    backUp: () => paste(blockOf("pg_dump ")),
    restore: () => paste(blockOf(`DATABASE_URL="$NEW" `), { NEW: restored }),
    end: async () => {
      await cluster.stop()
      await end()
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

const missingPostgres = isInstalled(15)
  ? ""
  : " (skipped: needs pg_dump and PostgreSQL 15: apt-get install postgresql)"

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

  const missing = missingForNodes !== "" ? missingForNodes : missingPostgres

  it.skipIf(missing !== "")(
    `of a cluster's database, by the commands of docs/operations.md, does the same${missing}`,
    () => scenario(nodes)
  )
})

/** The message with which an attempt fails. For commands, it contains what they wrote to standard error. */
const refusal = (attempt: Promise<unknown>): Promise<string> =>
  attempt.then(() => assert.fail("it succeeded"), (error: Error) => error.message)

describe("the rights that docs/operations.md names for a restore of PostgreSQL", { timeout: 300_000 }, () => {
  it.skipIf(missingPostgres !== "")(
    `are enough, and commands fail without them${missingPostgres}`,
    async () => {
      const { end, paste, urlOf } = await postgresOfParley("LOGIN")
      try {
        const into = blockOf("NEW=")
        const [setNew = "", create = "", fill = ""] = into.split("\n")
        const statements = Array.from(
          OPERATIONS.prose.matchAll(/`((?:CREATE|ALTER) DATABASE parley[^`]*)`/g),
          ([, statement = ""]) => statement
        )
        assert.lengthOf(statements, 3)
        const [createForParley = "", renameOld = "", renameRestored = ""] = statements
        const administrator = urlOf("postgres", "postgres")
        const other = { DATABASE_URL: urlOf("postgres", "other") }
        await query(administrator, "CREATE ROLE other LOGIN CREATEDB")
        await query(urlOf("parley"), "CREATE TABLE kept AS SELECT 1 AS one")
        await paste(blockOf("pg_dump "))

        // The role of DATABASE_URL does not have CREATEDB.
        assert.include(await refusal(paste(`${setNew}\n${create}`)), "permission denied to create database")

        // Another role creates and owns the new database. It may not give tables to the role of the dump.
        const withOwners = into.replace(" --no-owner --no-privileges", "")
        assert.notStrictEqual(withOwners, into)
        assert.include(await refusal(paste(withOwners, other)), `must be member of role "parley"`)
        await query(other.DATABASE_URL, "DROP DATABASE parley_restored")
        await paste(into, other)
        await query(urlOf("parley_restored", "other"), "SELECT one FROM kept")
        await query(other.DATABASE_URL, "DROP DATABASE parley_restored")

        // An administrator creates the new database, first with itself as the owner and then with the role.
        await query(administrator, "CREATE DATABASE parley_restored")
        assert.include(await refusal(paste(`${setNew}\n${fill}`)), "permission denied for schema public")
        await query(administrator, "DROP DATABASE parley_restored", createForParley)
        await paste(`${setNew}\n${fill}`)

        // To rename, a role needs CREATEDB and ownership, and nobody may be connected.
        const parley = urlOf("postgres")
        assert.include(await refusal(query(parley, renameOld)), "permission denied to rename database")
        await query(administrator, "ALTER ROLE parley CREATEDB")
        assert.include(await refusal(query(other.DATABASE_URL, renameOld)), "must be owner of database parley")
        const open = new Client(urlOf("parley"))
        await open.connect()
        try {
          assert.include(await refusal(query(parley, renameOld)), "is being accessed by other users")
        } finally {
          await open.end()
        }
        await query(parley, renameOld, renameRestored)
        await query(urlOf("parley"), "SELECT one FROM kept")
        await query(parley, "DROP DATABASE parley_before")
      } finally {
        await end()
      }
    }
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
        await eventually("the failure", () => server.stderr.match(/The backup in .* failed.* has 8 MB free/)?.[0])
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
