import { type ChildProcess, spawn } from "node:child_process"
import { once } from "node:events"
import {
  accessSync,
  chmodSync,
  constants,
  existsSync,
  globSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  symlinkSync
} from "node:fs"
import { mkdtemp, rm } from "node:fs/promises"
import { homedir, tmpdir } from "node:os"
import { delimiter, join, resolve } from "node:path"
import { setTimeout as pause } from "node:timers/promises"
import { freePort } from "../../runners/local/FreePort.ts"
import { Outbox } from "../../test/support/Outbox.ts"
import { build, environment, type Image, megabytes, parseDockerfile } from "./Dockerfile.ts"

/**
 * Carries out the Dockerfile in an empty folder, for machines that cannot pull an
 * image, and uses what comes of it: its CMD until its HEALTHCHECK is content, a message,
 * a restart on the same volume, SIGTERM, and the other things that the one image does.
 */

const ROOT = resolve(import.meta.dirname, "../..")
/** Stands for the commit of the image. */
const COMMIT = "0123456789abcdef0123456789abcdef01234567"
const LONGEST_WAIT_MS = 120_000

const say = (line: string) => console.log(line)
const insist: (holds: boolean, what: string) => asserts holds = (holds, what) => {
  if (!holds) throw new Error(`it does not hold that ${what}`)
  say(`  ✓ ${what}`)
}

/** Where a program of this machine is, this repository's own left out. */
const onPath = (program: string): string => {
  const folders = (process.env["PATH"] ?? "").split(delimiter).filter((folder) => !folder.includes("node_modules"))
  const found = folders.map((folder) => join(folder, program)).find((file) => existsSync(file))
  if (found === undefined) throw new Error(`${program} is not on PATH`)
  return found
}

/** The prepared databases in a folder. */
const prepared = (folder: string): ReadonlyArray<string> =>
  readdirSync(folder).filter((name) => /^database-[0-9a-f]{16}\.zst$/.test(name))

class Container {
  readonly child: ChildProcess
  output = ""
  readonly ended: Promise<number | NodeJS.Signals>

  constructor(image: Image, env: Readonly<Record<string, string>>, command: ReadonlyArray<string>) {
    const [program = "", ...args] = [...image.entrypoint, ...command]
    this.child = spawn(program, args, {
      cwd: join(image.root, image.workdir),
      env: { ...environment(image, { env: base }), ...env },
      stdio: ["ignore", "pipe", "pipe"],
      ...(process.getuid?.() === 0 ? image.user : {})
    })
    for (const stream of [this.child.stdout, this.child.stderr]) {
      stream?.setEncoding("utf8").on("data", (text: string) => (this.output += text))
    }
    this.ended = once(this.child, "close").then(([code, signal]) => code ?? signal)
    running.add(this.child)
    void this.ended.then(() => running.delete(this.child))
  }
}

const running = new Set<ChildProcess>()
const folder = await mkdtemp(join(tmpdir(), "parley-image-"))
const programs = join(folder, "programs")
const base = { PATH: `${programs}${delimiter}/usr/bin${delimiter}/bin` }

/** How this machine's npm gets at packages. */
const toRegistry = {
  npm_config_cache: join(homedir(), ".npm"),
  npm_config_userconfig: join(homedir(), ".npmrc"),
  npm_config_update_notifier: "false",
  ...Object.fromEntries(
    Object.entries(process.env).flatMap(([name, value]) =>
      /^((https?|no)_proxy|node_extra_ca_certs|ssl_cert_(file|dir)|npm_config_(registry|cafile))$/i.test(name) &&
        value !== undefined
        ? [[name, value]]
        : []
    )
  )
}

const tidy = async () => {
  for (const child of running) child.kill("SIGKILL")
  await rm(folder, { recursive: true, force: true })
}
for (const signal of ["SIGINT", "SIGTERM"] as const)
  process.once(signal, () => void tidy().finally(() => process.exit(130)))

interface Answer {
  readonly status: number
  readonly body: Readonly<Record<string, unknown>>
}

const call = async (url: string, body?: object, key?: string): Promise<Answer> => {
  const answer = await fetch(url, {
    method: body === undefined ? "GET" : "POST",
    headers: key === undefined ? {} : { authorization: `Bearer ${key}` },
    ...(body === undefined ? {} : { body: JSON.stringify(body) })
  })
  return { status: answer.status, body: await answer.json() as Answer["body"] }
}

/** Asks as Docker would until the answer is yes. */
const healthy = async (image: Image, env: Readonly<Record<string, string>>, server: Container): Promise<number> => {
  const begun = performance.now()
  while (performance.now() - begun < LONGEST_WAIT_MS) {
    const check = new Container({ ...image, entrypoint: [] }, env, image.healthcheck)
    const code = await check.ended
    if (code === 0) return performance.now() - begun
    if (server.child.exitCode !== null) break
    await pause(200)
  }
  throw new Error(`it is not healthy\n${server.output.slice(-4_000)}`)
}

const exercise = async () => {
  // Node 24 is the base image's; npm is this machine's and runs on it.
  mkdirSync(programs)
  chmodSync(folder, 0o755)
  symlinkSync(process.execPath, join(programs, "node"))
  symlinkSync(onPath("npm"), join(programs, "npm"))

  const source = readFileSync(join(ROOT, "Dockerfile"), "utf8")
  const [major] = process.versions.node.split(".")
  for (const { name, text } of parseDockerfile(source)) {
    if (name === "FROM") insist(text.startsWith(`node:${major}-`), `${text} has the Node of the development, ${major}`)
  }
  say("\nThe steps")
  const begun = performance.now()
  const image = await build(source, {
    context: ROOT,
    folder: join(folder, "image"),
    env: { ...toRegistry, ...base },
    args: { COMMIT },
    log: (line) => say(`  ${line.slice(0, 100)}`)
  })
  say(`  took ${((performance.now() - begun) / 1000).toFixed(1)} s`)

  const app = join(image.root, image.workdir)
  const data = join(image.root, image.volumes[0] ?? "")
  say("\nWhat is in it, beside the base image")
  for (const name of readdirSync(app).sort()) {
    say(`  ${megabytes(join(app, name)).toFixed(1).padStart(6)} MB  ${name}`)
  }
  const manifest: unknown = JSON.parse(readFileSync(join(app, "package.json"), "utf8"))
  const { devDependencies } = manifest as { readonly devDependencies: Readonly<Record<string, string>> }
  const developed = Object.keys(devDependencies).filter((name) =>
    existsSync(join(app, "node_modules", name, "package.json"))
  )
  // Types of Node are a dependency of a dependency, without code.
  insist(developed.every((name) => name.startsWith("@types/")), "no package is in it that only development needs")
  insist(["test", "verification", ".git"].every((name) => !existsSync(join(app, name))), "nor a test, nor the history")
  const sources = ["runners", "src"].flatMap((name) => globSync("**/*.ts", { cwd: join(app, name) }))
  insist(sources.length === 0, "nor a source that is not compiled")
  insist(existsSync(join(app, "bundle/Commands.js")), "the program's bundle is in it")
  insist(prepared(app).length === 1, "and one prepared database")
  for (const name of readdirSync(join(app, "node_modules/@img")).filter((name) => name.startsWith("sharp-libvips"))) {
    insist(
      readFileSync(join(app, "licenses/THIRD-PARTY.txt"), "utf8").includes(`@img/${name} `),
      `the licences name @img/${name}`
    )
  }
  insist(
    ["LGPL-3.0.txt", "GPL-3.0.txt"].every((name) => existsSync(join(app, "licenses", name))),
    "and include its texts"
  )
  insist(image.user.uid !== 0, `it runs as user ${image.user.uid}`)
  const cached = readdirSync(join(app, "node_modules/.cache/parley"))
  insist(cached.length > 0, "compiled code is in it")
  insist(cached.every((name) => !name.startsWith("bundle-")), "and no second bundle")
  if (process.getuid?.() === 0) {
    const probe = new Container({ ...image, entrypoint: [] }, {}, ["sh", "-c", "touch src/probe 2>/dev/null"])
    insist(await probe.ended !== 0, "its user cannot change its code")
  } else accessSync(app, constants.R_OK)

  say("\nThe server")
  const port = String(await freePort())
  const env = { PORT: port }
  const url = `http://127.0.0.1:${port}`
  let server = new Container(image, env, image.cmd)
  say(`  healthy after ${(await healthy(image, env, server)).toFixed(0)} ms, its database made`)
  const made = prepared(join(app, "node_modules/.cache/parley"))
  insist(made.length === 0, "the database came from the prepared one, because the server made none")

  const { body: { commit } } = await call(`${url}/v1/health`)
  insist(commit === COMMIT, "/v1/health shows the commit that `docker build --build-arg COMMIT=…` was given")

  const outbox = new Outbox(join(data, "outbox"))
  const register = async (handle: string): Promise<string> => {
    const email = `${handle}@example.com`
    const { body: { pending_id } } = await call(`${url}/v1/register`, { email, handle })
    const { body: { api_key } } = await call(`${url}/v1/register/verify`, {
      pending_id,
      code: await outbox.code(email)
    })
    return String(api_key)
  }
  const [ada, bob] = [await register("ada"), await register("bob")]
  const sent = await call(`${url}/v1/messages`, { to: "bob", client_msg_id: "one", content: { text: "Hello" } }, ada)
  insist(sent.status === 201, "a message is accepted")

  const stop = async () => {
    const at = performance.now()
    server.child.kill("SIGTERM")
    const how = await server.ended
    insist(
      how === 0,
      `SIGTERM to the image's own process ends it well, after ${(performance.now() - at).toFixed(0)} ms`
    )
  }
  await stop()
  server = new Container(image, env, image.cmd)
  say(`  healthy again on the same volume after ${(await healthy(image, env, server)).toFixed(0)} ms`)
  const waiting = await fetch(`${url}/v1/messages/sync`, { headers: { authorization: `Bearer ${bob}` } })
  insist((await waiting.text()).includes(String(sent.body["id"])), "the message waits for its recipient")
  const administered = new Container(image, {}, ["admin", "agents", "show", "ada"])
  insist(await administered.ended === 0 && administered.output.includes("ada"), "parley admin speaks to the server")
  await stop()

  say("\nThe rest of the one image")
  const node = new Container(image, {}, ["runner"])
  insist(await node.ended === 1, "parley runner refuses to start without what a node needs")
  for (const needed of ["DATABASE_URL", "REDIS_URL", "S3_BUCKET"])
    insist(node.output.includes(needed), `and says ${needed}`)
  const migrate = new Container(image, {}, ["migrate"])
  insist(await migrate.ended === 1 && migrate.output.includes("DATABASE_URL"), "parley migrate asks for its database")
}

try {
  await exercise()
  say("\nThe Dockerfile does what it should.")
} catch (error) {
  console.error(error)
  process.exitCode = 1
} finally {
  await tidy()
}
