import { type ChildProcess, execFileSync, spawn, spawnSync } from "node:child_process"
import { once } from "node:events"
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join, resolve } from "node:path"
import { getCACertificates, setDefaultCACertificates } from "node:tls"
import { freePort } from "../../runners/local/FreePort.ts"

const ROOT = resolve(import.meta.dirname, "../..")

/** The name in the configurations that stands for the operator's own. */
const EXAMPLE = "parley.example.com"

const lacking = ["caddy", "nginx", "openssl"].filter((program) => spawnSync(program, ["version"]).error !== undefined)

/** Empty if both web servers are installed; else the note that skipped tests append to their names. */
export const missingWebProxies = lacking.length === 0
  ? ""
  : ` (${lacking.join(", ")} not found: apt-get install --no-install-recommends ${lacking.join(" ")})`

/** Replaces each text in a configuration, and fails if it is not there. */
const replaced = (file: string, text: string, changes: ReadonlyArray<readonly [from: string, to: string]>): string =>
  changes.reduce((before, [from, to]) => {
    if (!before.includes(from)) throw new Error(`${file} has no ${from}`)
    return before.replaceAll(from, to)
  }, text)

/** The web servers with an example in `deploy/`. */
export const WEB_PROXIES = ["deploy/caddy/Caddyfile", "deploy/nginx/parley.conf"] as const

/**
 * A web server that terminates TLS in front of one server, with its configuration in `deploy/`. Only host names,
 * addresses and the certificate are changed. This process trusts the certificate.
 */
export class WebProxy {
  readonly url: string
  readonly process: ChildProcess
  readonly #folder: string
  #log = ""

  private constructor(url: string, folder: string, command: ReadonlyArray<string>) {
    this.url = url
    this.#folder = folder
    const [program = "", ...args] = command
    this.process = spawn(program, args, {
      stdio: ["ignore", "pipe", "pipe"],
      env: { PATH: process.env["PATH"], HOME: folder, XDG_DATA_HOME: folder, XDG_CONFIG_HOME: folder }
    })
    process.once("exit", () => this.process.kill("SIGKILL"))
    for (const stream of [this.process.stdout, this.process.stderr])
      stream?.setEncoding("utf8").on("data", (text: string) => (this.#log += text))
  }

  /**
   * Starts it on a port of this machine, in front of the server at `upstream` (host and port). nginx has `included` in
   * its block of the server.
   */
  static async start(
    file: typeof WEB_PROXIES[number],
    port: number,
    upstream: string,
    included = ""
  ): Promise<WebProxy> {
    const folder = await mkdtemp(join(tmpdir(), "parley-web-proxy-"))
    const [key, certificate] = [join(folder, "key.pem"), join(folder, "certificate.pem")]
    const words =
      "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost -addext"
    execFileSync(
      "openssl",
      [...words.split(" "), "subjectAltName=DNS:localhost", "-keyout", key, "-out", certificate],
      { stdio: "ignore" }
    )
    setDefaultCACertificates([...getCACertificates(), await readFile(certificate, "utf8")])
    const text = await readFile(join(ROOT, file), "utf8")
    const address = `localhost:${port}`
    const config = join(folder, "config")
    if (file === "deploy/caddy/Caddyfile") {
      const changed = replaced(file, text, [
        [`${EXAMPLE} {`, `${address} {\n\tbind 127.0.0.1\n\ttls ${certificate} ${key}`],
        ["127.0.0.1:3000", upstream]
      ])
      await writeFile(config, `{\n\tadmin off\n\tauto_https disable_redirects\n\tskip_install_trust\n}\n${changed}`)
      return new WebProxy(`https://${address}`, folder, ["caddy", "run", "--config", config, "--adapter", "caddyfile"])
    }
    const plain = await freePort()
    const changed = replaced(file, text, [
      ["\tlisten [::]:80;\n", ""],
      ["\tlisten [::]:443 ssl;\n", ""],
      ["listen 80;", `listen 127.0.0.1:${plain};`],
      ["listen 443 ssl;", `listen 127.0.0.1:${port} ssl;`],
      ["server_name parley.example.com;", "server_name localhost;"],
      ["/etc/letsencrypt/live/parley.example.com/fullchain.pem", certificate],
      ["/etc/letsencrypt/live/parley.example.com/privkey.pem", key],
      ["127.0.0.1:3000", upstream],
      ["\tlocation / {", `${included}\n\tlocation / {`]
    ])
    const folders = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map((name) =>
      [name, join(folder, name)] as const
    )
    for (const [, path] of folders) await mkdir(path)
    await writeFile(
      config,
      `${process.getuid?.() === 0 ? "user root;\n" : ""}daemon off;
pid ${join(folder, "pid")};
error_log stderr warn;
events { worker_connections 4096; }
http {
access_log off;
${folders.map(([name, path]) => `${name}_temp_path ${path};`).join("\n")}
${changed}
}
`
    )
    return new WebProxy(`https://${address}`, folder, ["nginx", "-e", "stderr", "-p", folder, "-c", config])
  }

  /** Everything it has written. */
  get log(): string {
    return this.#log
  }

  async stop(): Promise<void> {
    if (this.process.exitCode === null && this.process.signalCode === null) {
      // nginx would leave its workers behind after a SIGKILL.
      this.process.kill("SIGTERM")
      await once(this.process, "exit")
    }
    await rm(this.#folder, { recursive: true, force: true })
  }
}
