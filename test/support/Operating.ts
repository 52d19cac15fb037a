import { assert } from "@effect/vitest"
import { adminHere } from "./Admin.ts"
import { type Answer, bare, untilTaken } from "./Http.ts"
import type { Server } from "./Server.ts"

export const COOKIE = "parley_console"

/** The token of a new one-time link. */
export const newLink = async (server: Server): Promise<string> => {
  const { code, stderr, stdout } = await adminHere(server.place, "console", "--json")
  assert.strictEqual(code, 0, stderr)
  const { url } = JSON.parse(stdout) as { readonly url: string }
  const [page, token] = url.split("#")
  assert.match(page ?? "", /\/console$/)
  assert.match(token ?? "", /^opl_[\w-]{43}$/)
  return token ?? ""
}

/** A program's token. */
export const newToken = async (server: Server, ...args: ReadonlyArray<string>): Promise<string> => {
  const { code, stderr, stdout } = await adminHere(server.place, "console", "token", "test", "--json", ...args)
  assert.strictEqual(code, 0, stderr)
  return (JSON.parse(stdout) as { readonly token: string }).token
}

/** One request with exactly these headers. A change is repeated after 503 `UNAVAILABLE`. */
export const request = (
  server: Server,
  method: string,
  path: string,
  headers: Readonly<Record<string, string>> = {},
  body?: unknown
): Promise<Answer> => {
  const once = () =>
    bare(server.url, method, `/console/api${path}`, headers, body === undefined ? "" : JSON.stringify(body))
  return method === "GET" ? once() : untilTaken(once)
}

export const redeem = (server: Server, token: string): Promise<Answer> =>
  request(server, "POST", "/session", {}, { token })

export const cookieOf = (answer: Answer): string =>
  /parley_console=([^;]*)/.exec(answer.header("set-cookie") ?? "")?.[1] ?? ""

/** A client of the operators' API of this server. */
export class Operating {
  readonly server: Server
  readonly headers: Readonly<Record<string, string>>

  private constructor(server: Server, headers: Readonly<Record<string, string>>) {
    this.server = server
    this.headers = headers
  }

  /** Signs in with a one-time link, as a browser does. */
  static async signIn(server: Server): Promise<Operating> {
    const answer = await redeem(server, await newLink(server))
    assert.strictEqual(answer.status, 200, `${answer}`)
    return Operating.withSession(server, cookieOf(answer))
  }

  static withSession(server: Server, session: string): Operating {
    return new Operating(server, { cookie: `${COOKIE}=${session}`, origin: server.url })
  }

  static async program(server: Server): Promise<Operating> {
    return new Operating(server, { authorization: `Bearer ${await newToken(server)}` })
  }

  ask(method: string, path: string, body?: unknown): Promise<Answer> {
    const once = () => request(this.server, method, path, this.headers, body)
    return method === "GET" ? untilTaken(once) : once()
  }

  /** The body of an answer that must be 200. */
  async ok<A>(method: string, path: string, body?: unknown): Promise<A> {
    const answer = await this.ask(method, path, body)
    assert.strictEqual(answer.status, 200, `${answer}`)
    return answer.body as A
  }
}
