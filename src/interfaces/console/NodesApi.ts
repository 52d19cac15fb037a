import { documented } from "#infrastructure/http/Documented"
import { DateTimeString } from "#infrastructure/wire/Text"
import { NotFound } from "#infrastructure/wire/WireError"
import { Conflict } from "#interfaces/operator/Conflict"
import { LogLevelName, NodeShown, Overview } from "#interfaces/operator/Overview"
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, HttpApiSchema, OpenApi } from "effect/http-api"
import { ConsoleAuthorization, Needs } from "./ConsoleAuthorization.ts"

const params = { address: Schema.String }
const parameters = { address: "10.0.0.5:14431" }

const node = {
  address: "10.0.0.5:14431",
  is_this: true,
  state: "ready",
  words: "Ready.",
  role: "runner",
  version: "0.2.0",
  since: "2026-11-22T09:00:00.000Z",
  shards: 150,
  sockets: 2_310,
  sends_per_second: 412.3,
  pushes_per_second: 630.1,
  requests_per_second: 455,
  errors_per_second: 0,
  send_p50_ms: 3.1,
  send_p99_ms: 18.4,
  cpu_percent: 41.2,
  memory_bytes: 310_000_000,
  lag_ms: 11.4,
  disk_free_bytes: 81_000_000_000,
  logged_warnings: 1,
  logged_errors: 0,
  log_level: "info"
} as const

/** The backups that the server makes on its own. Without BACKUP_EVERY, all fields are null and the list is empty. */
const BackupsShown = Schema.Struct({
  every_hours: Schema.NullOr(Schema.Int),
  place: Schema.NullOr(Schema.String),
  keep: Schema.NullOr(Schema.Int),
  /** Why the last attempt of this process failed. */
  problem: Schema.NullOr(Schema.String),
  /** The newest first. */
  backups: Schema.Array(Schema.Struct({ name: Schema.String, at: DateTimeString, bytes: Schema.Int }))
})

/** The settings of the node that answers. */
const SettingsShown = Schema.Struct({
  node: Schema.String,
  settings: Schema.Array(Schema.Struct({
    name: Schema.String,
    /** For a secret, only whether it is set. */
    value: Schema.String,
    is_default: Schema.Boolean,
    /** `default`, `environment`, or a file with the line. */
    origin: Schema.String,
    about: Schema.String
  }))
})

/** The endpoints for the nodes' figures and for orders to a node (wire.md O.1). */
export class NodesApi extends HttpApiGroup.make("nodes")
  .add(
    HttpApiEndpoint.get("overview", "/console/api/overview", { success: Overview }).annotateMerge(documented({
      summary: "Get the overview",
      description:
        "Answers with all nodes and what they depend on, with a minute, an hour and a day of history. A node that does not " +
        "answer within a second is silent. `connections` is the number of live OAuth connections, or null if the database does not answer."
    })),
    HttpApiEndpoint.get("stream", "/console/api/stream", {
      success: Schema.String.pipe(HttpApiSchema.asText({ contentType: "text/event-stream" }))
    }).annotateMerge(documented({
      summary: "Follow the overview",
      description:
        "Server-sent events: `overview` at once and every second, without history; `end` with a reason when the session " +
        "has ended or the server stops."
    })),
    HttpApiEndpoint.get("node", "/console/api/nodes/:address", { params, success: NodeShown, error: NotFound })
      .annotateMerge(documented({
        summary: "Get a node",
        description: "Answers with one node and its history.",
        parameters,
        answer: node
      })),
    HttpApiEndpoint.get("problems", "/console/api/nodes/:address/problems", {
      params,
      success: Schema.Struct({
        /** The newest first. */
        problems: Schema.Array(Schema.Struct({
          at: DateTimeString,
          level: Schema.Literals(["warn", "error"]),
          message: Schema.String,
          /** The annotations and the cause of the log line, shortened. */
          detail: Schema.String
        }))
      }),
      error: [NotFound, Conflict]
    }).annotateMerge(documented({
      summary: "List a node's problems",
      description:
        "Answers with the newest 100 warnings and the newest 100 errors that the node has logged since it started, the newest first. " +
        "409 if the node does not answer.",
      parameters,
      answer: {
        problems: [{
          at: "2026-11-28T03:30:07.000Z",
          level: "warn",
          message: "Redis does not answer",
          detail: "address=redis:6379"
        }]
      }
    })).annotate(Needs, "operator"),
    HttpApiEndpoint.get("settings", "/console/api/settings", { success: SettingsShown }).annotateMerge(documented({
      summary: "List settings",
      description:
        "Answers with the settings in force on the node that answers, and where each comes from. Limits that operators changed at run time are not included. " +
        "Of a secret, the answer says only whether it is set.",
      answer: {
        node: "10.0.0.5:14431",
        settings: [{
          name: "PORT",
          value: "4000",
          is_default: false,
          origin: "environment",
          about: "port of the HTTP server"
        }]
      }
    })).annotate(Needs, "operator"),
    HttpApiEndpoint.get("backups", "/console/api/backups", { success: BackupsShown, error: Conflict })
      .annotateMerge(documented({
        summary: "List backups",
        description:
          "Answers with the backups that the server makes on its own (BACKUP_EVERY), the newest first, and why the last attempt failed. " +
          "409 if the place of the backups does not answer.",
        answer: {
          every_hours: 24,
          place: "/mnt/backups/parley",
          keep: 7,
          problem: null,
          backups: [{ name: "parley-20261128T033007Z.tar", at: "2026-11-28T03:30:07.000Z", bytes: 27_682_304 }]
        }
      })),
    HttpApiEndpoint.post("drain", "/console/api/nodes/:address/drain", {
      params,
      success: NodeShown,
      error: [NotFound, Conflict]
    })
      .annotateMerge(documented({
        summary: "Drain a node",
        description:
          "Does the same as stopping the node, but the process stays. The node tells the balancer that it is not ready, " +
          "closes its sockets over two seconds, takes no new ones, and gives its shards to the others. Refused if no other node is ready. " +
          "Ends with `undrain` or a restart.",
        parameters,
        answer: { ...node, state: "drained", shards: 0, sockets: 0 }
      })),
    HttpApiEndpoint.post("undrain", "/console/api/nodes/:address/undrain", {
      params,
      success: NodeShown,
      error: [NotFound, Conflict]
    })
      .annotateMerge(documented({
        summary: "Undrain a node",
        description: "Lets a drained node serve again.",
        parameters,
        answer: node
      })),
    HttpApiEndpoint.put("logLevel", "/console/api/nodes/:address/log-level", {
      params,
      payload: Schema.Struct({ level: LogLevelName }),
      success: NodeShown,
      error: [NotFound, Conflict]
    }).annotateMerge(documented({
      summary: "Set a node's log level",
      description: "Sets the least severe level of log lines that a node writes, until the node restarts.",
      parameters,
      body: { level: "debug" },
      answer: { ...node, log_level: "debug" }
    }))
  )
  .middleware(ConsoleAuthorization)
  .annotateMerge(OpenApi.annotations({ title: "Nodes", description: "The nodes, and what they depend on." }))
{}
