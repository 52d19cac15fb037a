import { execFile } from "node:child_process"
import { chownSync, cpSync, existsSync, lstatSync, mkdirSync, readdirSync, readFileSync, statSync } from "node:fs"
import { basename, join, posix, relative } from "node:path"

/** One step as it stands in the file, continued lines as one. */
export interface Instruction {
  readonly name: string
  readonly flags: Readonly<Record<string, string>>
  readonly text: string
  /** The words of the JSON form; undefined for the shell's form. */
  readonly words: ReadonlyArray<string> | undefined
}

const jsonForm = (text: string): ReadonlyArray<string> | undefined =>
  text.startsWith("[") ? JSON.parse(text) as ReadonlyArray<string> : undefined

/** What a Dockerfile says, without comments. */
export const parseDockerfile = (source: string): ReadonlyArray<Instruction> =>
  source.replaceAll(/^\s*#.*\n/gm, "").replaceAll(/\\\n\s*/g, "").split("\n").filter((line) => line.trim() !== "").map(
    (line) => {
      const [, name = "", all = ""] = line.match(/^\s*([A-Z]+)\s+(.*)$/) ?? []
      if (name === "") throw new Error(`not an instruction: ${line}`)
      const [head = ""] = all.match(/^(--[a-z-]+=\S+\s+)*/) ?? []
      const flags = Object.fromEntries(
        Array.from(head.matchAll(/--([a-z-]+)=(\S+)/g), ([, flag, value]) => [flag, value])
      )
      const text = all.slice(head.length).trim()
      return { name, flags, text, words: jsonForm(text) }
    }
  )

/** Whether a path of the context reaches the builder: the last line of .dockerignore that matches it decides. */
export const makeIgnored = (source: string): (path: string) => boolean => {
  const lines = source.split("\n").map((line) => line.trim()).filter((line) => line !== "" && !line.startsWith("#"))
  const rules = lines.map((line) => {
    const pattern = line.replace(/^!/, "").replace(/^\/|\/$/g, "")
    const expression = pattern.replaceAll(/[.+^${}()|[\]\\]/g, "\\$&")
      .replaceAll("**", "\0").replaceAll("*", "[^/]*").replaceAll("?", "[^/]").replaceAll("\0", ".*")
    return { keeps: line.startsWith("!"), matches: new RegExp(`^${expression}(/|$)`) }
  })
  return (path) => rules.findLast(({ matches }) => matches.test(path))?.keeps === false
}

/** What a finished stage says about how to run it. */
export interface Image {
  /** The folder that stands for its root. */
  readonly root: string
  readonly base: string
  readonly env: Readonly<Record<string, string>>
  readonly workdir: string
  readonly user: { readonly uid: number; readonly gid: number }
  readonly entrypoint: ReadonlyArray<string>
  readonly cmd: ReadonlyArray<string>
  readonly healthcheck: ReadonlyArray<string>
  readonly volumes: ReadonlyArray<string>
}

const run = (file: string, args: ReadonlyArray<string>, options: object): Promise<void> =>
  new Promise((resolve, reject) =>
    execFile(
      file,
      args,
      options,
      (error, stdout, stderr) => error === null ? resolve() : reject(new Error(`${args.join(" ")}\n${stdout}${stderr}`))
    )
  )

export interface Machine {
  /** The folder that the image is made from. */
  readonly context: string
  /** An empty folder for the stages. */
  readonly folder: string
  /** In place of what the base image has: PATH above all. */
  readonly env: Readonly<Record<string, string>>
  /** The values of `--build-arg`. */
  readonly args: Readonly<Record<string, string>>
  readonly log: (line: string) => void
}

/**
 * Carries out a Dockerfile's own steps in folders that stand for the roots of its
 * stages, with the programs of this machine. A path that is absolute in the image lies
 * in its folder. As root every step runs as the user that the file says, else as oneself.
 */
export const build = async (source: string, machine: Machine): Promise<Image> => {
  const root = process.getuid?.() === 0
  const ignored = makeIgnored(readFileSync(join(machine.context, ".dockerignore"), "utf8"))
  const stages = new Map<string, string>()
  let image: Image | undefined
  /** The build arguments that the current stage has declared. */
  let args: Record<string, string> = {}

  const inRoot = (path: string): string => {
    if (image === undefined) throw new Error("no FROM yet")
    return join(image.root, posix.resolve(image.workdir, path))
  }

  for (const { flags, name, text, words } of parseDockerfile(source)) {
    machine.log(`${name} ${text}`)
    if (name === "FROM") {
      const [base = "", , stage = String(stages.size)] = text.split(/\s+/)
      const folder = join(machine.folder, stage)
      mkdirSync(join(folder, "tmp"), { recursive: true })
      stages.set(stage, folder)
      args = {}
      image = {
        root: folder,
        base,
        env: {},
        workdir: "/",
        user: { uid: 0, gid: 0 },
        entrypoint: [],
        cmd: [],
        healthcheck: [],
        volumes: []
      }
      continue
    }
    if (image === undefined) throw new Error(`${name} before FROM`)
    switch (name) {
      case "WORKDIR": {
        image = { ...image, workdir: posix.resolve(image.workdir, text) }
        mkdirSync(inRoot("."), { recursive: true })
        break
      }
      case "ENV": {
        const pairs = Array.from(
          text.matchAll(/(\w+)=(?:"([^"]*)"|(\S*))/g),
          ([, key, quoted, plain]) => [key, quoted ?? plain]
        )
        image = { ...image, env: { ...image.env, ...Object.fromEntries(pairs) } }
        break
      }
      case "ARG": {
        const [key = "", standard] = text.split("=", 2)
        const value = machine.args[key] ?? standard
        if (value !== undefined) args[key] = value
        break
      }
      case "COPY": {
        const paths = text.split(/\s+/)
        const to = paths.pop() ?? "."
        const from = flags["from"] === undefined ? machine.context : stages.get(flags["from"])
        if (from === undefined) throw new Error(`no stage ${flags["from"]}`)
        for (const path of paths) {
          const what = join(from, path)
          if (!existsSync(what)) throw new Error(`COPY ${path}: is not there`)
          cpSync(
            what,
            to.endsWith("/") && !statSync(what).isDirectory() ? join(inRoot(to), basename(path)) : inRoot(to),
            {
              recursive: true,
              verbatimSymlinks: true,
              filter: (file) => from !== machine.context || file === from || !ignored(relative(from, file))
            }
          )
        }
        break
      }
      case "RUN": {
        const [shell, option, line] = words ?? ["/bin/sh", "-c", text]
        if (shell === undefined || option === undefined) throw new Error("RUN of nothing")
        await run(shell, [option, translate(line ?? "", image, root)], {
          cwd: inRoot("."),
          env: { ...args, ...environment(image, machine) },
          ...(root ? image.user : {}),
          maxBuffer: 64 * 2 ** 20
        })
        break
      }
      case "USER": {
        const [uid, gid] = text.split(":").map(Number)
        if (uid === undefined || gid === undefined || Number.isNaN(uid + gid) || uid === 0) {
          throw new Error(`USER ${text}: a number that is not root, so that Kubernetes can see it`)
        }
        image = { ...image, user: { uid, gid } }
        if (root) chownSync(join(image.root, "tmp"), uid, gid)
        break
      }
      case "VOLUME": {
        image = { ...image, volumes: [...image.volumes, text] }
        break
      }
      case "ENTRYPOINT": {
        image = { ...image, entrypoint: exec(name, words) }
        break
      }
      case "CMD": {
        image = { ...image, cmd: exec(name, words) }
        break
      }
      case "HEALTHCHECK": {
        image = { ...image, healthcheck: exec(name, jsonForm(text.replace(/^CMD\s+/, ""))) }
        break
      }
      case "EXPOSE":
      case "STOPSIGNAL":
        break
      default:
        throw new Error(`${name} is not known here`)
    }
  }
  if (image === undefined) throw new Error("no stage")
  return image
}

/** A shell between Docker and the server would keep the signals. */
const exec = (name: string, words: ReadonlyArray<string> | undefined): ReadonlyArray<string> => {
  if (words === undefined) throw new Error(`${name} in the shell's form: signals would not reach the program`)
  return words
}

/** Absolute paths of the image, wherever a command names one. */
const translate = (command: string, image: Image, root: boolean): string => {
  const line = command.replaceAll(/(^|[\s=])\/(?=(app|data)\b)/g, (_, before: string) => `${before}${image.root}/`)
  return root ? line : line.replaceAll(/\b1000:1000\b/g, `${process.getuid?.()}:${process.getgid?.()}`)
}

/** What a process of the image has in its environment here. */
export const environment = (image: Image, machine: Pick<Machine, "env">): Record<string, string> => ({
  ...machine.env,
  HOME: join(image.root, "tmp"),
  TMPDIR: join(image.root, "tmp"),
  ...Object.fromEntries(
    Object.entries(image.env).map(([key, value]) => [key, value.startsWith("/") ? join(image.root, value) : value])
  )
})

/** Megabytes of a file, or of the files below a folder. */
export const megabytes = (path: string): number => {
  const found = lstatSync(path)
  return found.isDirectory()
    ? readdirSync(path).reduce((sum, name) => sum + megabytes(join(path, name)), 0)
    : found.size / 2 ** 20
}
