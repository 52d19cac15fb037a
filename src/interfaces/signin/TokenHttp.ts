import { MAX_REGISTRATION_BYTES, readRegistration } from "#domain/oauth/ClientMetadata"
import { Clients, type Credentials } from "#domain/oauth/Clients"
import { isOwnResource, offersOAuth } from "#domain/oauth/Discovery"
import { Grants, type Issued, type NotIssued } from "#domain/oauth/Grants"
import { scopeText } from "#domain/oauth/Scopes"
import { uncheckedText } from "#infrastructure/http/BufferedRequest"
import { Config } from "#infrastructure/platform/Config"
import { publicUrl } from "#infrastructure/platform/PublicUrl"
import { inexactNumber, numberRefused } from "#infrastructure/wire/InexactNumber"
import { NO_STORE } from "#infrastructure/wire/Uncached"
import { Effect } from "effect"
import { HttpRouter, HttpServerRequest, HttpServerResponse } from "effect/http"
import { MAX_FORM_BYTES, readForm, repeatedIn } from "./Form.ts"
import { OAuthLimits } from "./OAuthLimits.ts"
import { REGISTER, REVOKE, TOKEN } from "./OAuthProtocol.ts"

const json = (status: number, body: object, headers: Readonly<Record<string, string>> = {}) =>
  HttpServerResponse.jsonUnsafe(body, { status, headers: { ...NO_STORE, pragma: "no-cache", ...headers } })

const refuse = (status: number, error: string, message: string, headers?: Readonly<Record<string, string>>) =>
  json(status, { error, error_description: message }, headers)

const TOO_LONG = `The form has more than ${MAX_FORM_BYTES} bytes.`
const UNKNOWN_CLIENT = "This server does not know the client, or its secret is wrong. Register again."

/**
 * Decodes a part of the credentials in the Authorization header. The client id and secret are each form-encoded (RFC
 * 6749, 2.3.1).
 */
const decoded = (text: string): string | undefined => {
  try {
    return decodeURIComponent(text.replaceAll("+", " "))
  } catch {
    return undefined
  }
}

const BASIC = /^basic +([A-Za-z0-9+/=_-]+) *$/i

/**
 * The client's credentials, from the Authorization header or from the form; undefined if neither or both contain
 * credentials.
 */
export const credentialsOf = (authorization: string | undefined, form: URLSearchParams): Credentials | undefined => {
  const [id, secret] = [form.get("client_id"), form.get("client_secret")]
  const basic = BASIC.exec(authorization ?? "")?.[1]
  if (basic === undefined)
    return id === null
      ? undefined
      : { clientId: id, secret, method: secret === null ? "none" : "client_secret_post" }
  const text = Buffer.from(basic, "base64").toString()
  const colon = text.indexOf(":")
  const [clientId, password] = [decoded(text.slice(0, colon)), decoded(text.slice(colon + 1))]
  if (
    colon < 0 || clientId === undefined || password === undefined || secret !== null || (id !== null && id !== clientId)
  ) return undefined
  return { clientId, secret: password, method: "client_secret_basic" }
}

const unknownClient = (authorization: string | undefined) =>
  refuse(
    401,
    "invalid_client",
    UNKNOWN_CLIENT,
    BASIC.test(authorization ?? "") ? { "www-authenticate": 'Basic realm="Parley"' } : undefined
  )

const answerOf = (outcome: Issued | NotIssued, what: string) =>
  "access" in outcome
    ? json(200, {
      access_token: outcome.access,
      token_type: "Bearer",
      expires_in: outcome.expiresIn,
      refresh_token: outcome.refresh,
      scope: scopeText(outcome.scopes)
    })
    : refuse(
      400,
      "invalid_grant",
      outcome._tag === "Reused"
        ? `This ${what} was used before, so the connection has ended. Sign in again.`
        : `This ${what} is unknown, too old or of another client, or its connection has ended. Sign in again.`
    )

/** `POST /register`, `/token` and `/revoke`, which programs call (wire.md P). */
export const TokenHttp = HttpRouter.use((router) =>
  Effect.gen(function*() {
    const clients = yield* Clients
    const config = yield* Config
    const connections = yield* Grants
    const limits = yield* OAuthLimits
    if (!offersOAuth(config)) return
    const form = (request: HttpServerRequest.HttpServerRequest) => Effect.map(uncheckedText(request), readForm)

    yield* router.add(
      "POST",
      REGISTER,
      Effect.gen(function*() {
        const request = yield* HttpServerRequest.HttpServerRequest
        yield* limits.take("registrations", request)
        const text = yield* uncheckedText(request)
        let body: unknown
        try {
          body = Buffer.byteLength(text) > MAX_REGISTRATION_BYTES ? undefined : JSON.parse(text)
        } catch {
          body = undefined
        }
        const inexact = body === undefined ? undefined : inexactNumber(text)
        if (inexact !== undefined) return refuse(400, "invalid_client_metadata", numberRefused(inexact).message)
        const metadata = readRegistration(body, config.OAUTH_REDIRECT_SCHEMES)
        if ("error" in metadata) return refuse(400, metadata.error, metadata.message)
        const { id, secret } = clients.register(metadata)
        return json(201, {
          client_id: id,
          ...(secret === null ? {} : { client_secret: secret, client_secret_expires_at: 0 }),
          ...(metadata.name === null ? {} : { client_name: metadata.name }),
          redirect_uris: metadata.redirectUris,
          token_endpoint_auth_method: metadata.method,
          grant_types: ["authorization_code", "refresh_token"],
          response_types: ["code"]
        })
      })
    )

    yield* router.add(
      "POST",
      TOKEN,
      Effect.gen(function*() {
        const request = yield* HttpServerRequest.HttpServerRequest
        yield* limits.take("tokens", request)
        const given = yield* form(request)
        if (given === undefined) return refuse(400, "invalid_request", TOO_LONG)
        const { authorization } = request.headers
        const repeated = repeatedIn(given)
        if (repeated !== undefined) return refuse(400, "invalid_request", `${repeated} is given more than once.`)
        const credentials = credentialsOf(authorization, given)
        if (credentials === undefined || !clients.authenticate(credentials)) return unknownClient(authorization)
        const base = publicUrl(config)
        if (!isOwnResource(base, given.getAll("resource")))
          return refuse(400, "invalid_target", `resource must be ${base}/mcp.`)
        const { clientId } = credentials
        switch (given.get("grant_type")) {
          case null:
            return refuse(
              400,
              "invalid_request",
              "grant_type is missing. Send the parameters as a form (application/x-www-form-urlencoded)."
            )
          case "authorization_code": {
            const [code, redirectUri, verifier] = [
              given.get("code"),
              given.get("redirect_uri"),
              given.get("code_verifier")
            ]
            if (code === null || redirectUri === null || verifier === null) {
              return refuse(400, "invalid_request", "code, redirect_uri and code_verifier are required.")
            }
            return answerOf(yield* connections.redeem({ code, clientId, redirectUri, verifier }), "code")
          }
          case "refresh_token": {
            const token = given.get("refresh_token")
            if (token === null)
              return refuse(400, "invalid_request", "refresh_token is required.")
            return answerOf(yield* connections.refresh(token, clientId), "refresh token")
          }
          default:
            return refuse(400, "unsupported_grant_type", "grant_type must be authorization_code or refresh_token.")
        }
      })
    )

    yield* router.add(
      "POST",
      REVOKE,
      Effect.gen(function*() {
        const request = yield* HttpServerRequest.HttpServerRequest
        yield* limits.take("tokens", request)
        const given = (yield* form(request)) ?? new URLSearchParams()
        yield* connections.revoke(
          given.get("token") ?? "",
          credentialsOf(request.headers["authorization"], given)?.clientId
        )
        // The response does not tell whether the token existed (RFC 7009, 2.2).
        return json(200, {})
      })
    )
  })
)
