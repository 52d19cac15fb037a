import type { Settings } from "#infrastructure/platform/Config"
import { Context } from "effect"
import type { HttpApiEndpoint } from "effect/http-api"

/**
 * Annotations of endpoints, `endpoint.annotate(BodyLimit, …)`, that the server applies before and around the handler.
 * The server resolves them once, when it starts (RouteTable.ts). A protocol annotates all of its paths at once
 * (Protocol.ts). Annotations that only a middleware of a module applies are declared beside the middleware.
 */

/** How many bytes a body may have that consists of a few short texts. */
export const SMALL_BODY = 16_384

/** Returns how many bytes the body of a request may have with these settings. */
export type BodyBytes = (config: Settings) => number

/** The limit of endpoints whose body consists of a few short texts, for example endpoints without a key. */
export const smallBody: BodyBytes = (config) => Math.min(config.LIMITS_BODY_BYTES, SMALL_BODY)

/** The limit of endpoints whose JSON may contain a file in base64. */
export const bodyWithFile: BodyBytes = (config) => 1.5 * config.LIMITS_BODY_BYTES

/**
 * How many bytes the body of a request may have. Parsing a body of a megabyte with very many fields takes half a
 * second, so each endpoint should allow only the size that it needs.
 */
export const BodyLimit = Context.Reference<BodyBytes>("parley/http/EndpointOptions/BodyLimit", {
  defaultValue: () => (config) => config.LIMITS_BODY_BYTES
})

/**
 * Describes a body of raw bytes of any content type. The endpoint itself checks the size. The value is how many bytes
 * the endpoint keeps in memory at most, or `"streamed"` if the endpoint stores the bytes as they arrive.
 */
export type RawBody = number | "streamed"

/** Annotates an endpoint that reads its body itself, because the body is not JSON. */
export const RawBody = Context.Reference<RawBody | undefined>("parley/http/EndpointOptions/RawBody", {
  defaultValue: () => undefined
})

/**
 * Annotates an endpoint that balancers, orchestrators and monitoring request at short intervals (wire.md C.13). These
 * requests are not traffic of agents. They are counted only in `http_probes_total`, are not traced, and are not logged.
 */
export const Probe = Context.Reference("parley/http/EndpointOptions/Probe", { defaultValue: () => false })

/**
 * Whether the deadline of reads applies to the endpoint. Without the annotation, the deadline applies to endpoints with
 * the method GET.
 */
export const ReadDeadline = Context.Reference<boolean | undefined>("parley/http/EndpointOptions/ReadDeadline", {
  defaultValue: () => undefined
})

/**
 * Whether requests to the endpoint get 503 if the database does not respond within `READ_MS` (wire.md C.0,
 * Unavailable).
 */
export const hasReadDeadline = ({ annotations, method }: HttpApiEndpoint.Top): boolean =>
  Context.get(annotations, ReadDeadline) ?? method === "GET"
