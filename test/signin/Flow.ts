import assert from "node:assert/strict"
import { createHash, randomBytes } from "node:crypto"
import { patient } from "../support/Patient.ts"

/** An answer of which a test looks at some fields only. */
type Json = ReturnType<typeof JSON.parse>

/** A server, by its URL. */
type Place = { readonly url: string }

/** An agent that signs in with its key. */
type Person = { readonly handle: string; readonly key: string }

/** An answer with its body, which may be no JSON. */
export interface Got {
  readonly status: number
  readonly headers: Headers
  readonly text: string
  readonly body: Json
}

const got = async (response: Response): Promise<Got> => {
  const text = await response.text()
  let body: unknown
  try {
    body = JSON.parse(text)
  } catch {
    body = undefined
  }
  return { status: response.status, headers: response.headers, text, body }
}

export const get = async (url: string, headers: Record<string, string> = {}): Promise<Got> =>
  got(await patient(url, { headers, redirect: "manual" }))

/** Posts a form, as hosts do at `/token` and `/revoke`. */
export const form = async (
  url: string,
  fields: ReadonlyArray<readonly [string, string]> | Record<string, string>,
  headers: Record<string, string> = {}
): Promise<Got> =>
  got(
    await patient(url, {
      method: "POST",
      body: new URLSearchParams(fields as Record<string, string>).toString(),
      headers: { "content-type": "application/x-www-form-urlencoded", ...headers }
    })
  )

export const register = async (server: Place, metadata: object): Promise<Got> =>
  got(
    await patient(`${server.url}/register`, {
      method: "POST",
      body: JSON.stringify(metadata),
      headers: { "content-type": "application/json" }
    })
  )

/** The base of the server's own URLs, as its metadata says. */
export const baseOf = async (server: Place): Promise<string> =>
  (await get(`${server.url}/.well-known/oauth-authorization-server`)).body.issuer

export interface Pkce {
  readonly verifier: string
  readonly challenge: string
}

export const pkce = (): Pkce => {
  const verifier = randomBytes(32).toString("base64url")
  return { verifier, challenge: createHash("sha256").update(verifier).digest("base64url") }
}

/** The sign-in page of one request, in the browser in which it began. */
export class SignInPage {
  readonly server: Place
  readonly id: string
  readonly cookie: string

  constructor(server: Place, id: string, cookie: string) {
    this.server = server
    this.id = id
    this.cookie = cookie
  }

  /** The page that an answer of `/authorize` leads to. */
  static after(server: Place, headers: Headers): SignInPage {
    const id = new URL(headers.get("location") ?? "", server.url).searchParams.get("request") ?? ""
    const cookie =
      /^(parley_oauth=[^;]+); Path=\/oauth\/requests\/([^;]+); Max-Age=900; HttpOnly; SameSite=Lax(?:; Secure)?$/.exec(
        headers.get("set-cookie") ?? ""
      )
    assert.strictEqual(cookie?.[2], id, headers.get("set-cookie") ?? "no cookie")
    return new SignInPage(server, id, cookie?.[1] ?? "")
  }

  /** Opens the URL to which a host sends a browser. */
  static async open(url: URL): Promise<SignInPage> {
    const { headers, status, text } = await get(url.href)
    assert.strictEqual(status, 303, text)
    return SignInPage.after({ url: url.origin }, headers)
  }

  url(path = ""): string {
    return `${this.server.url}/oauth/requests/${this.id}${path}`
  }

  async show(headers: Record<string, string> = {}): Promise<Got> {
    return get(this.url(), { cookie: this.cookie, ...headers })
  }

  async post(path: string, body: object = {}, headers: Record<string, string> = {}): Promise<Got> {
    return got(
      await patient(this.url(path), {
        method: "POST",
        body: JSON.stringify(body),
        headers: { cookie: this.cookie, origin: this.server.url, "content-type": "application/json", ...headers }
      })
    )
  }

  async signIn(agent: Person): Promise<void> {
    const { body, status, text } = await this.post("/key", { api_key: agent.key })
    assert.strictEqual(status, 200, text)
    assert.strictEqual(body.agent.handle, agent.handle)
  }

  /** Allows the request, and returns the URL that the browser goes to. */
  async allow(scopes?: ReadonlyArray<string>): Promise<URL> {
    const { body, status, text } = await this.post("/allow", scopes === undefined ? {} : { scopes })
    assert.strictEqual(status, 200, text)
    return new URL(body.redirect_to)
  }
}

/** A host that connects to an agent, with its own client id. */
export class Host {
  readonly server: Place
  readonly clientId: string
  readonly redirectUri: string
  readonly secret: string | undefined

  constructor(server: Place, clientId: string, redirectUri: string, secret?: string) {
    this.server = server
    this.clientId = clientId
    this.redirectUri = redirectUri
    this.secret = secret
  }

  static async register(
    server: Place,
    redirectUri = "https://host.example/callback",
    metadata: object = {}
  ): Promise<Host> {
    const { body, status, text } = await register(server, {
      redirect_uris: [redirectUri],
      client_name: "Host",
      ...metadata
    })
    assert.strictEqual(status, 201, text)
    return new Host(server, body.client_id, redirectUri, body.client_secret)
  }

  /** The URL to which the host sends a browser. `undefined` leaves a parameter out. */
  authorizeUrl({ challenge }: Pkce, changes: Record<string, string | undefined> = {}): string {
    const all: Record<string, string | undefined> = {
      response_type: "code",
      client_id: this.clientId,
      redirect_uri: this.redirectUri,
      code_challenge: challenge,
      code_challenge_method: "S256",
      state: "st 1",
      ...changes
    }
    const given = Object.entries(all).filter((entry): entry is [string, string] => entry[1] !== undefined)
    return `${this.server.url}/authorize?${new URLSearchParams(given)}`
  }

  /** The answer of `/authorize`. */
  authorize(pkce: Pkce, changes: Record<string, string | undefined> = {}, more = ""): Promise<Got> {
    return get(this.authorizeUrl(pkce, changes) + more)
  }

  /** Begins a sign-in, and returns the page that the browser is led to. */
  async begin(pkce: Pkce, changes: Record<string, string | undefined> = {}): Promise<SignInPage> {
    const { headers, status, text } = await this.authorize(pkce, changes)
    assert.strictEqual(status, 303, text)
    return SignInPage.after(this.server, headers)
  }

  token(fields: Record<string, string>, headers: Record<string, string> = {}): Promise<Got> {
    const own = this.secret === undefined
      ? { client_id: this.clientId }
      : { client_id: this.clientId, client_secret: this.secret }
    return form(`${this.server.url}/token`, { ...own, ...fields }, headers)
  }

  redeem(code: string, { verifier }: Pkce, changes: Record<string, string> = {}): Promise<Got> {
    return this.token({
      grant_type: "authorization_code",
      code,
      redirect_uri: this.redirectUri,
      code_verifier: verifier,
      ...changes
    })
  }

  refresh(token: string): Promise<Got> {
    return this.token({ grant_type: "refresh_token", refresh_token: token })
  }

  /** The whole sign-in of a person with the agent's key: the tokens. */
  async connect(agent: Person, scopes?: ReadonlyArray<string>): Promise<Tokens> {
    const pair = pkce()
    const page = await this.begin(pair)
    await page.signIn(agent)
    const url = await page.allow(scopes)
    const { body, status, text } = await this.redeem(url.searchParams.get("code") ?? "", pair)
    assert.strictEqual(status, 200, text)
    return body
  }
}

export interface Tokens {
  readonly access_token: string
  readonly refresh_token: string
  readonly token_type: string
  readonly expires_in: number
  readonly scope: string
}
