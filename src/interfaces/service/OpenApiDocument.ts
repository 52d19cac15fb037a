import { MethodNotAllowed, NotFound } from "#infrastructure/wire/WireError"
import { clientFrames, serverFrames } from "#interfaces/realtime/Frames"
import { JsonSchema, Predicate, Schema } from "effect"
import { Degraded } from "./ServiceApi.ts"

type Json = Record<string, unknown>

const mapValues = <A>(object: Readonly<Record<string, A>>, f: (value: A, key: string) => unknown): Json =>
  Object.fromEntries(Object.entries(object).map(([key, value]) => [key, f(value, key)]))

const nameOf = (name: string): string => name.replace(/Encoded$/, "")

/**
 * Simplifies a schema for callers. Leaves objects open, because unknown fields are ignored and later versions may add
 * fields. Drops the bounds of safe integers, which every integer has. Merges the only schema of an `allOf` into the
 * schema around it. Renames definitions to the names of the contract.
 */
const tidy = (value: unknown): unknown => {
  if (Array.isArray(value)) return value.map(tidy)
  if (!Predicate.isObject(value)) return value
  const { allOf, ...rest } = value
  const [only] = Array.isArray(allOf) && allOf.length === 1 ? allOf as ReadonlyArray<unknown> : []
  const isPart = Predicate.isObject(only) && Object.keys(only).every((key) => !(key in rest))
  return Object.fromEntries(
    Object.entries(isPart ? { ...rest, ...only } : value)
      .filter(([key, inner]) =>
        !(key === "additionalProperties" && typeof inner === "boolean") &&
        !((key === "minimum" || key === "maximum") && Math.abs(Number(inner)) === Number.MAX_SAFE_INTEGER)
      )
      .map(([key, inner]) => [key, key === "$ref" && typeof inner === "string" ? nameOf(inner) : tidy(inner)])
  )
}

/** Closes the schema of an error's body, because such a body has exactly these fields. */
const closed = (schema: unknown): unknown =>
  Predicate.isObject(schema) && Predicate.isObject(schema["properties"]) && "code" in schema["properties"]
    ? { ...schema, additionalProperties: false }
    : schema

/** The JSON schemas of `named`. Adds the definitions to which they refer to `definitions`. */
const schemasOf = (named: Readonly<Record<string, Schema.Top>>, definitions: Json): Json =>
  mapValues(named, (schema) => {
    const { schemas: [root], definitions: shared } = JsonSchema.toMultiDocumentOpenApi3_1(
      multiDocument(Schema.toJsonSchemaDocument(schema))
    )
    for (const [name, definition] of Object.entries(shared)) definitions[nameOf(name)] ??= closed(tidy(definition))
    return closed(tidy(root))
  })

const multiDocument = (document: JsonSchema.Document<"draft-2020-12">): JsonSchema.MultiDocument<"draft-2020-12"> => ({
  dialect: document.dialect,
  schemas: [document.schema],
  definitions: document.definitions
})

/** Adds the headers of all responses, and the headers of particular statuses. */
const withHeaders = (response: unknown, status: string): unknown => {
  if (!Predicate.isObject(response)) return response
  const headers: Json = { "x-request-id": { $ref: "#/components/headers/RequestId" } }
  if (status === "429" || status === "503") headers["retry-after"] = { $ref: "#/components/headers/RetryAfter" }
  if (status === "401") headers["www-authenticate"] = { schema: { type: "string", enum: ["Bearer"] }, required: true }
  return {
    ...response,
    headers: { ...headers, ...(Predicate.isObject(response["headers"]) ? response["headers"] : {}) }
  }
}

const mentions = (response: unknown, error: string): boolean =>
  response !== undefined && JSON.stringify(response).includes(`/${error}`)

/** The additional headers of a response that may be a replay. */
const REPLAY_HEADERS = { "idempotent-replay": { $ref: "#/components/headers/IdempotentReplay" } }

/**
 * Adds the Idempotency-Key header to the operations that accept it. These are the operations that can fail with
 * IdempotencyKeyConflict.
 */
const withIdempotencyKey = (operation: Json, responses: Json): Json => {
  if (!mentions(responses["422"], "IdempotencyKeyConflict")) return { ...operation, responses }
  const parameters: ReadonlyArray<unknown> = Array.isArray(operation["parameters"]) ? operation["parameters"] : []
  return {
    ...operation,
    parameters: [...parameters, { $ref: "#/components/parameters/IdempotencyKey" }],
    responses: mapValues(
      responses,
      (response, status) =>
        !Predicate.isObject(response) || Number(status) >= 500 || status === "401" || status === "429" ? response : {
          ...response,
          headers: {
            ...(Predicate.isObject(response["headers"]) ? response["headers"] : {}),
            ...REPLAY_HEADERS,
            ...(status === "409" ? { "retry-after": { $ref: "#/components/headers/RetryAfter" } } : {})
          }
        }
    )
  }
}

const jsonResponse = (description: string, schema: unknown): Json => ({
  description,
  content: { "application/json": { schema } }
})

const unroutedNote =
  "Every 4xx and 5xx has the body `{code, message, details?}`. An unknown path answers 404 `NOT_FOUND` and a wrong method " +
  "405 `METHOD_NOT_ALLOWED` (components/responses). Unknown fields are ignored, and new ones may appear in answers."

/** Describes the WebSocket in an extension, because OpenAPI cannot describe it. */
const socketOf = (definitions: Json): Json => ({
  path: "/v1/ws",
  description: "Text frames of JSON. Either the upgrade carries `Authorization: Bearer <key>` (and " +
    "`X-AgentChat-Capabilities: ack`), or the first frame is hello. Undelivered messages come first, then live ones, " +
    "each conversation in the order of its seq.",
  receive: schemasOf(serverFrames, definitions),
  send: schemasOf(clientFrames, definitions),
  closeCodes: {
    "1001": "The server shuts down, or a ping went unanswered: connect again.",
    "1008": "The key is bad, suspended, rotated or deleted, or the first frame was not hello: do not connect again.",
    "1009": "A frame was too large.",
    "1011": "The server failed: connect again.",
    "1013":
      "Too slow, too many sockets, too many bad frames, no hello in time, the server is about to stop, or the key " +
      "could not be checked: connect again later."
  }
})

/** Turns the document that Effect derives from the Api into the published document. */
export const published = (spec: Json): Json => {
  const components = Predicate.isObject(spec["components"]) ? spec["components"] : {}
  const schemas: Json = {}
  for (const [name, schema] of Object.entries(Predicate.isObject(components["schemas"]) ? components["schemas"] : {})) {
    schemas[nameOf(name)] = closed(tidy(schema))
  }
  const extra = schemasOf({ NotFound, MethodNotAllowed, Degraded }, schemas)
  schemas["Degraded"] ??= extra["Degraded"]
  const paths = mapValues(
    Predicate.isObject(spec["paths"]) ? spec["paths"] : {},
    (item, path) =>
      mapValues(Predicate.isObject(item) ? item : {}, (operation) => {
        if (!Predicate.isObject(operation)) return operation
        const tidied = Object.assign({}, tidy(operation))
        const responses = { ...(Predicate.isObject(operation["responses"]) ? operation["responses"] : {}) }
        if (path === "/v1/ws") {
          delete responses["204"]
          responses["101"] = { description: "The socket is open." }
          for (const [status, error] of [["401", "Unauthorized"], ["403", "AgentSuspended"]] as const) {
            responses[status] = jsonResponse("The key that came with the upgrade.", {
              $ref: `#/components/schemas/${error}`
            })
          }
        }
        if (path === "/v1/messages" && Predicate.isObject(responses["200"])) {
          responses["200"] = {
            ...responses["200"],
            headers: {
              ...REPLAY_HEADERS,
              "x-client-msg-id-conflict": { $ref: "#/components/headers/ClientMsgIdConflict" }
            }
          }
        }
        if (path === "/v1/health") {
          responses["503"] = jsonResponse("Storage cannot be reached.", { $ref: "#/components/schemas/Degraded" })
        }
        return withIdempotencyKey(
          tidied,
          mapValues(responses, (response, status) => withHeaders(tidy(response), status))
        )
      })
  )
  const socket = socketOf(schemas)
  const info = Predicate.isObject(spec["info"]) ? spec["info"] : {}
  return {
    ...spec,
    info: { ...info, description: `${String(info["description"])}\n\n${unroutedNote}` },
    paths,
    components: {
      ...components,
      securitySchemes: {
        bearer: { type: "http", scheme: "bearer", description: "The agent's API key, which begins with ac_." }
      },
      schemas,
      headers: {
        RequestId: {
          description: "The caller's x-request-id if it was 1 to 128 printable characters, else a new one.",
          schema: { type: "string" },
          required: true
        },
        RetryAfter: {
          description: "Seconds after which a retry can succeed; absent when waiting alone does not help.",
          schema: { type: "integer", minimum: 1 }
        },
        IdempotentReplay: {
          description:
            "`true` if the request repeats an earlier one with the same Idempotency-Key, or a send with the same client_msg_id. This is " +
            "the answer to the earlier request, and nothing was done again.",
          schema: { type: "string", enum: ["true"] }
        },
        ClientMsgIdConflict: {
          description:
            "Present if the message is an earlier one in another conversation than the request names. The message of the request " +
            "was not sent: send it with another client_msg_id.",
          schema: { type: "string", enum: ["conversation"] }
        }
      },
      parameters: {
        IdempotencyKey: {
          name: "Idempotency-Key",
          in: "header",
          required: false,
          description:
            "A repeated request with the same key, path and body has no second effect and gets the same answer. Keys are stored for each " +
            "agent; answers 401, 429 and 5xx are not stored.",
          schema: { type: "string", minLength: 1, maxLength: 255, pattern: "^[ -~]*$" }
        }
      },
      responses: {
        RouteNotFound: withHeaders(jsonResponse("There is no such path.", extra["NotFound"]), "404"),
        MethodNotAllowed: withHeaders(
          jsonResponse(
            "The path does not support this method. The Allow header lists the methods that it supports.",
            extra["MethodNotAllowed"]
          ),
          "405"
        )
      }
    },
    "x-websocket": socket
  }
}
