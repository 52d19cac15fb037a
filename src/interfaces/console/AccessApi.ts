import { documented } from "#infrastructure/http/Documented"
import { Confirmation } from "#infrastructure/wire/Confirmation"
import { DateTimeString, Storable } from "#infrastructure/wire/Text"
import { NotFound } from "#infrastructure/wire/WireError"
import { Role } from "#interfaces/operator/Role"
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, HttpApiSchema, OpenApi } from "effect/http-api"
import { ConsoleAuthorization, Needs } from "./ConsoleAuthorization.ts"

const access = {
  id: Schema.String,
  kind: Schema.Literals(["session", "token"]),
  operator: Schema.String,
  role: Role,
  name: Schema.NullOr(Schema.String),
  created_at: DateTimeString,
  expires_at: DateTimeString
}

export const Session = Schema.Struct({ ...access, node: Schema.String, version: Schema.String }).annotate({
  identifier: "Session"
})

export const Sessions = Schema.Struct({
  sessions: Schema.Array(
    Schema.Struct({ ...access, last_used_at: Schema.NullOr(DateTimeString), is_own: Schema.Boolean })
  )
})

const example = {
  id: "ops_0f1e2d3c4b5a69788796",
  kind: "session",
  operator: "nina",
  role: "operator",
  name: null,
  created_at: "2026-11-22T09:00:00.000Z",
  expires_at: "2026-11-22T21:00:00.000Z"
} as const

/**
 * The endpoints that sign an operator in, with a one-time link or by a proxy (wire.md O.1). Only they need no session or
 * token.
 */
export class SignInApi extends HttpApiGroup.make("door")
  .add(
    HttpApiEndpoint.post("redeem", "/console/api/session", {
      payload: Schema.Struct({ token: Schema.String }),
      success: Session,
      error: NotFound
    }).annotateMerge(documented({
      summary: "Redeem a link",
      description: "Turns the token of a one-time link into a session, once, and sets its cookie.",
      body: { token: "opl_…" },
      answer: { ...example, node: "10.0.0.5:14431", version: "0.2.0" }
    })),
    HttpApiEndpoint.post("signInByProxy", "/console/api/session/proxy", { success: Session, error: NotFound })
      .annotateMerge(documented({
        summary: "Sign in by a proxy",
        description:
          "Opens a session for the person whom the proxy of CONSOLE_PROXY_PEOPLE names, and sets its cookie. If no proxy names anybody, the answer is 404.",
        answer: {
          ...example,
          name: "proxy",
          node: "10.0.0.5:14431",
          version: "0.2.0"
        }
      }))
  )
  .annotateMerge(OpenApi.annotations({ title: "Door", description: "Signing in." }))
{}

/** The endpoints for sessions and program tokens. */
export class AccessApi extends HttpApiGroup.make("access")
  .add(
    HttpApiEndpoint.get("session", "/console/api/session", { success: Session }).annotateMerge(documented({
      summary: "Get your session",
      description: "Says who is signed in, until when, and which node answers.",
      answer: { ...example, node: "10.0.0.5:14431", version: "0.2.0" }
    })),
    HttpApiEndpoint.delete("leave", "/console/api/session", { success: Confirmation }).annotateMerge(documented({
      summary: "Sign out",
      description: "Ends the session or token that makes this request, on every node, and clears the cookie.",
      answer: { ok: true, message: "Signed out." }
    })).annotate(Needs, "viewer"),
    HttpApiEndpoint.get("sessions", "/console/api/sessions", { success: Sessions }).annotateMerge(documented({
      summary: "List sessions",
      description: "Lists the sessions and program tokens that are valid, the newest first.",
      answer: { sessions: [{ ...example, last_used_at: "2026-11-22T09:30:00.000Z", is_own: true }] }
    })),
    HttpApiEndpoint.delete("end", "/console/api/sessions/:id", {
      params: { id: Storable },
      success: Confirmation,
      error: NotFound
    }).annotateMerge(documented({
      summary: "End a session",
      description: "Ends a session or a program's token, on every node.",
      parameters: { id: example.id },
      answer: { ok: true, message: "The session is ended." }
    })),
    HttpApiEndpoint.get("openapi", "/console/api/openapi.json", {
      success: Schema.String.pipe(HttpApiSchema.asText({ contentType: "application/json" }))
    })
      .annotateMerge(
        documented({ summary: "Get this document", description: "The operators' API as an OpenAPI document." })
      )
  )
  .middleware(ConsoleAuthorization)
  .annotateMerge(OpenApi.annotations({ title: "Access", description: "Sessions, and tokens of programs." }))
{}
