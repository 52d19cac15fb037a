import { settings } from "#infrastructure/platform/Config"
import { assert, it } from "@effect/vitest"
import { readFileSync } from "node:fs"
import { join } from "node:path"
import { makeIgnored, parseDockerfile } from "../../verification/deployment/Dockerfile.ts"

const ROOT = join(import.meta.dirname, "../..")
const read = (path: string): string => readFileSync(join(ROOT, path), "utf8")

/** Names that stand as keys between two lines of a file in YAML. */
const keys = (path: string, after: string, before: string): ReadonlyArray<string> => {
  const [, part = ""] = read(path).split(`\n${after}`)
  const names = Array.from(
    (part.split(`\n${before}`)[0] ?? "").matchAll(/^ +([A-Z][A-Z0-9_]+):/gm),
    ([, name]) => name ?? ""
  )
  assert.isNotEmpty(names, path)
  return names
}

it("the examples of deployments set only settings that exist", () => {
  const environment = parseDockerfile(read("Dockerfile")).filter(({ name }) => name === "ENV").flatMap(({ text }) =>
    Array.from(text.matchAll(/(\w+)=/g), ([, name]) => name ?? "")
  )
  const named = {
    Dockerfile: environment.filter((name) => name !== "NODE_ENV"),
    "docker-compose.yml": keys("docker-compose.yml", "x-settings:", "x-parley:"),
    "configmap.yaml": keys("deploy/kubernetes/configmap.yaml", "data:", "---"),
    "secret.example.yaml": keys("deploy/kubernetes/secret.example.yaml", "stringData:", "---"),
    "deployment.yaml": Array.from(
      read("deploy/kubernetes/deployment.yaml").matchAll(/- name: ([A-Z_]+)/g),
      ([, name]) => name ?? ""
    )
  }
  for (const [file, names] of Object.entries(named)) {
    assert.deepStrictEqual(names.filter((name) => !(name in settings)), [], file)
  }
})

it("a deployment opens no port between nodes to the world, asks for readiness, and gives a node the time to stop", () => {
  const compose = read("docker-compose.yml")
  assert.deepStrictEqual(compose.match(/^ +ports:\n(?: +- .*\n)+/gm), [
    `    ports:\n      - "\${BIND:-127.0.0.1:3000}:3000"\n`
  ])
  assert.isAtLeast(Number(/stop_grace_period: (\d+)s/.exec(compose)?.[1]), 15)
  assert.include(read("deploy/haproxy.cfg"), "http-check send meth GET uri /v1/ready")

  const deployment = read("deploy/kubernetes/deployment.yaml")
  const figure = (pattern: RegExp): number => Number(pattern.exec(deployment)?.[1])
  assert.isAtLeast(figure(/terminationGracePeriodSeconds: (\d+)/), figure(/command: \[sleep, "(\d+)"\]/) + 15)
  assert.match(deployment, /readinessProbe:\s+httpGet:\s+path: \/v1\/ready\n/)
  assert.notInclude(read("deploy/kubernetes/service.yaml"), "nodes\n")
  const [, open = "", limited = ""] = read("deploy/kubernetes/networkpolicy.yaml").split(/^ {4}- /m)
  assert.strictEqual(open.trim(), "ports:\n        - port: http")
  assert.match(limited, /^from:\s+- podSelector:[^]*port: nodes\s*$/)
})

it("the image runs the compiled files of `npm run build`, as the npm package does, and no source", () => {
  const stages = parseDockerfile(read("Dockerfile"))
  const last = stages.slice(stages.findLastIndex(({ name }) => name === "FROM"))
  const copied = last.flatMap(({ flags, name, text }) =>
    name === "COPY" ? [`${flags["from"] ?? "context"} ${text}`] : []
  )
  assert.deepStrictEqual(copied, [
    "dependencies /app/node_modules node_modules",
    "dependencies /app/licenses licenses",
    "context LICENSE ./",
    "build /app/dist ./"
  ])
  assert.isTrue(stages.some(({ name, text }) => name === "RUN" && text === "npm run build"))
})

it("the image is built from the files that the build of a server needs, and no others", () => {
  const ignored = makeIgnored(read(".dockerignore"))
  const kept = [
    "package.json",
    "package-lock.json",
    ".npmrc",
    "LICENSE",
    "build/Pack.ts",
    "tsconfig.build.json",
    "src/Http.ts",
    "schema/0001_add.sql",
    "runners/parley.js",
    "runners/Start.ts"
  ]
  const left = [
    ".git/config",
    ".env",
    "data/blobs/x",
    "node_modules/pg/package.json",
    "test/support/Http.ts",
    "dist/src/Http.js",
    "README.md"
  ]
  assert.deepStrictEqual(kept.filter(ignored), [])
  assert.deepStrictEqual(left.filter((path) => !ignored(path)), [])
})

it("the unit of a server may write wherever the unit of its backup may, because the server writes the backup", () => {
  const writable = (unit: string): ReadonlyArray<string> =>
    Array.from(read(`deploy/systemd/${unit}`).matchAll(/^ReadWritePaths=-?(.+)$/gm), ([, path]) => path ?? "")
  assert.isNotEmpty(writable("parley-backup.service"))
  assert.includeMembers([...writable("parley.service")], [...writable("parley-backup.service")])
})
