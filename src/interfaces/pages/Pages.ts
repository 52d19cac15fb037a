import { Blobs } from "#infrastructure/files/Blobs"
import { Config } from "#infrastructure/platform/Config"
import { keepSuccess, loadOnce } from "#infrastructure/platform/LazyLoad"
import { Unavailable } from "#infrastructure/wire/WireError"
import { Context, Effect, Layer } from "effect"
import { type HttpServerRequest, HttpServerResponse } from "effect/http"
import { loadAssets } from "./Assets.ts"
import { type Document, documentOf } from "./Document.ts"
import { signInProblem } from "./SignInProblem.ts"
import { sendStatic, type StaticBody, staticBody } from "./StaticBody.ts"
import { welcome } from "./Welcome.ts"

const YEAR_SECONDS = 31_536_000

const guarded = {
  "x-content-type-options": "nosniff",
  "referrer-policy": "no-referrer",
  "cross-origin-resource-policy": "same-origin"
}

/** Prepares a page for sending. */
const made = ({ html, policy }: Document, headers: Readonly<Record<string, string>>): Send => {
  const body = staticBody(Buffer.from(html), "text/html; charset=utf-8")
  return (request) =>
    sendStatic(request, body, {
      ...guarded,
      "content-security-policy": policy,
      "cross-origin-opener-policy": "same-origin",
      "permissions-policy": "camera=(), geolocation=(), microphone=()",
      "x-frame-options": "DENY",
      "cache-control": "no-cache",
      ...headers
    }, "Accept")
}

/**
 * Sends a file. If `current` is true, the path contains the current version of the files, so clients may cache the
 * response forever.
 */
const sendAsset = (request: HttpServerRequest.HttpServerRequest, asset: StaticBody, current: boolean) =>
  sendStatic(request, asset, {
    ...guarded,
    "cache-control": current ? `public, max-age=${YEAR_SECONDS}, immutable` : "no-store"
  })

/**
 * Whether a request prefers a page to JSON. It does if `text/html` has the higher weight, or has the same weight and
 * comes first.
 */
export const wantsPage = (accept: string | undefined): boolean => {
  const weights = new Map(
    (accept ?? "").toLowerCase().split(",").map((part): [string, number] => {
      const [type = "", ...parameters] = part.split(";").map((text) => text.trim())
      const weight = parameters.find((text) => text.startsWith("q="))
      return [type, weight === undefined ? 1 : Number(weight.slice(2))]
    })
  )
  const html = weights.get("text/html") ?? 0
  const json = weights.get("application/json") ?? 0
  return html > json ||
    (html > 0 && html === json &&
      [...weights.keys()].indexOf("text/html") < [...weights.keys()].indexOf("application/json"))
}

const STARTING = `<div id="page"><p class="starting">Starting … This page needs JavaScript.</p></div>`

type Send = (request: HttpServerRequest.HttpServerRequest) => Effect.Effect<HttpServerResponse.HttpServerResponse>

/** The pages of this server (wire.md O). Each page is made at its first request. */
export class Pages extends Context.Service<Pages, {
  readonly welcome: Send
  readonly app: Send
  /** The page on which a person registers an agent, with an invitation if the server needs one. */
  readonly join: Send
  readonly console: Send
  /** The page on which a person lets a program use an agent (wire.md P, "Sign-in page"). */
  readonly signIn: Send
  /** A page with status 400 that tells why a sign-in cannot begin. `message` is shown as text. */
  readonly problem: (
    request: HttpServerRequest.HttpServerRequest,
    message: string
  ) => Effect.Effect<HttpServerResponse.HttpServerResponse>
  /** The response with the file at this path; undefined if there is no such file. */
  readonly asset: (
    request: HttpServerRequest.HttpServerRequest,
    version: string,
    path: string
  ) => Effect.Effect<HttpServerResponse.HttpServerResponse | undefined>
}>()("parley/pages/Pages") {
  static readonly layer = Layer.effect(
    Pages,
    Effect.gen(function*() {
      const blobs = yield* Blobs
      const config = yield* Config
      const registration = [config.REGISTRATION, ...config.REGISTRATION_DOMAINS].join(" ")
      const files = yield* loadOnce("The files of the pages", Effect.sync(loadAssets), () => new Unavailable())
      // A defect with the code of the contract gets the same response as the error.
      const assets = Effect.orDie(files)
      /**
       * The origin to which clients upload files and from which they download them. It is known only after the server
       * has begun to listen.
       */
      const store = blobs.uploadUrl({ id: "att_example", size: 1, sha256: "0".repeat(64) }).pipe(
        Effect.map((url) => [new URL(url).origin]),
        Effect.orElseSucceed((): ReadonlyArray<string> => [])
      )
      const page = (
        make: Effect.Effect<Document>,
        headers: Readonly<Record<string, string>> = {}
      ): Effect.Effect<Send> =>
        Effect.map(
          keepSuccess(Effect.map(make, (document) => made(document, headers))),
          (sender): Send => (request) => Effect.flatMap(sender, (send) => send(request))
        )
      return Pages.of({
        welcome: yield* page(Effect.map(assets, (all) => documentOf(all, welcome(config)))),
        app: yield* page(Effect.gen(function*() {
          return documentOf(yield* assets, {
            title: "Parley",
            entry: "app/Main.js",
            registration,
            stores: yield* store,
            body: STARTING
          })
        })),
        join: yield* page(
          Effect.map(
            assets,
            (all) =>
              documentOf(all, {
                title: "Register an agent · Parley",
                entry: "join/Main.js",
                registration,
                body: STARTING
              })
          )
        ),
        console: yield* page(Effect.map(assets, (all) =>
          documentOf(all, {
            title: "Parley console",
            entry: "console/Main.js",
            styles: ["packages/uplot/style.css"],
            body: STARTING
          }))),
        signIn: yield* page(
          Effect.map(
            assets,
            (all) =>
              documentOf(all, {
                title: "Connect a program · Parley",
                entry: "oauth/Main.js",
                registration,
                root: "../",
                body: STARTING
              })
          ),
          // If the sign-in runs in a pop-up, the page to which the browser returns needs access to its opener.
          { "cache-control": "no-store", "cross-origin-opener-policy": "unsafe-none" }
        ),
        problem: (request, message) =>
          Effect.flatMap(
            assets,
            (all) => made(documentOf(all, signInProblem(message)), { "cache-control": "no-store" })(request)
          ).pipe(
            Effect.map(HttpServerResponse.setStatus(400))
          ),
        asset: (request, version, path) =>
          Effect.flatMap(assets, ({ files, version: current }) => {
            const asset = files.get(path)
            return asset === undefined ? Effect.succeed(undefined) : sendAsset(request, asset, version === current)
          })
      })
    })
  )
}
