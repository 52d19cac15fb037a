import { Budgets } from "#domain/auth/Budgets"
import { LargeReads } from "#infrastructure/concurrency/LargeReads"
import { Blobs, RangeNotSatisfiable, type SignedFiles } from "#infrastructure/files/Blobs"
import { RawBody } from "#infrastructure/http/EndpointOptions"
import { isKnown, rangeOf } from "#infrastructure/wire/Conditional"
import { toResponse } from "#infrastructure/wire/WireErrors"
import { Effect, Layer } from "effect"
import { HttpRouter, HttpServerRequest, HttpServerResponse } from "effect/http"
import { HttpApiEndpoint } from "effect/http-api"
import { IncomingMessage } from "node:http"
import { Readable } from "node:stream"

/** The path of the disk store's signed URLs. The token follows it. */
export const SIGNED_URLS = "/v1/files/"

/** The options of an upload to a signed URL. Its route is not part of the Api. */
export const upload = HttpApiEndpoint.put("upload", `${SIGNED_URLS}:token`).annotate(RawBody, "streamed")

/** Returns the token of a signed URL: the last segment of its path. */
const tokenOf = (request: HttpServerRequest.HttpServerRequest): string =>
  request.url.replace(/[?#].*$/s, "").replace(/^.*\//s, "")

const routes = (files: SignedFiles) =>
  HttpRouter.use((router) =>
    Effect.gen(function*() {
      const budgets = yield* Budgets
      const reads = yield* LargeReads

      yield* router.add(
        "PUT",
        upload.path,
        Effect.gen(function*() {
          const request = yield* HttpServerRequest.HttpServerRequest
          yield* budgets.ofAddress(request)
          const length = request.headers["content-length"]
          // This server's requests always have an IncomingMessage as their source.
          const bytes = request.source instanceof IncomingMessage ? request.source : Readable.from([])
          yield* reads.file(
            budgets.addressOf(request),
            files.accept(tokenOf(request), bytes, length === undefined ? undefined : Number(length))
          )
          return HttpServerResponse.jsonUnsafe({ ok: true, message: "The file is stored." })
        })
      )

      yield* router.add(
        "GET",
        upload.path,
        Effect.gen(function*() {
          const request = yield* HttpServerRequest.HttpServerRequest
          yield* budgets.ofAddress(request)
          const file = yield* reads.file(budgets.addressOf(request), files.open(tokenOf(request)))
          const { contentType, etag, size } = file
          const headers = {
            "accept-ranges": "bytes",
            etag,
            "content-disposition": file.disposition,
            "x-content-type-options": "nosniff",
            "content-security-policy": "default-src 'none'; sandbox",
            "cache-control": "private, max-age=300"
          }
          if (isKnown(request.headers["if-none-match"], etag)) return HttpServerResponse.empty({ status: 304, headers })
          // A range has a meaning only for GET (RFC 9110, 14.2).
          const part = request.method === "GET" ? rangeOf(request.headers, size, etag) : undefined
          if (part === "none")
            return toResponse(new RangeNotSatisfiable(), {
              "accept-ranges": "bytes",
              "content-range": `bytes */${size}`
            })
          if (part === undefined)
            return HttpServerResponse.raw(file.bytes(), { contentType, contentLength: size, headers })
          const { first, last } = part
          return HttpServerResponse.raw(file.bytes(part), {
            status: 206,
            contentType,
            contentLength: last - first + 1,
            headers: { ...headers, "content-range": `bytes ${first}-${last}/${size}` }
          })
        })
      )
    })
  )

/**
 * Serves the signed URLs of the disk store, which has no server of its own. The OpenAPI document does not contain these
 * opaque URLs.
 */
export const FilesHttp = Layer.unwrap(
  Effect.map(Blobs, ({ signedFiles }) => signedFiles === undefined ? Layer.empty : routes(signedFiles))
)
