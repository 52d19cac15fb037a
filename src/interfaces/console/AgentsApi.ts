import { Skill } from "#domain/agents/Skill"
import { Connection } from "#domain/oauth/GrantsApi"
import { Email } from "#domain/registration/RegistrationApi"
import { documented } from "#infrastructure/http/Documented"
import { API_KEY } from "#infrastructure/wire/Examples"
import { Limit } from "#infrastructure/wire/Page"
import { DateTimeString, HandleInput, Storable } from "#infrastructure/wire/Text"
import { NotFound } from "#infrastructure/wire/WireError"
import { AccountStatus } from "#interfaces/operator/AgentAccount"
import { Conflict } from "#interfaces/operator/Conflict"
import { Reason } from "#interfaces/operator/Reason"
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, OpenApi } from "effect/http-api"
import { ConsoleAuthorization, Needs } from "./ConsoleAuthorization.ts"
import { Why } from "./DeliveryDiagnosis.ts"

const params = { handle: HandleInput }
const parameters = { handle: "nina" }
const orNull = <S extends Schema.Top>(schema: S) => Schema.NullOr(schema)

const line = {
  handle: Schema.String,
  id: Schema.String,
  email: Schema.String,
  display_name: Schema.String,
  status: AccountStatus,
  created_at: DateTimeString,
  deleted_at: orNull(DateTimeString)
}
const AgentLine = Schema.Struct({ ...line, undelivered: Schema.Finite, waiting_since: orNull(DateTimeString) })
  .annotate({ identifier: "AgentLine" })

/** The response with a page of agents. */
export const AgentsPage = Schema.Struct({ agents: Schema.Array(AgentLine), next_cursor: orNull(Schema.String) })

/** The response with new agents. Their keys are shown only here. */
export const CreatedAgents = Schema.Struct({
  agents: Schema.Array(
    Schema.Struct({ handle: Schema.String, id: Schema.String, email: Schema.String, api_key: Schema.String })
  )
})

export const Socket = Schema.Struct({
  node: Schema.String,
  since: DateTimeString,
  client: orNull(Schema.String),
  acknowledges: Schema.Boolean,
  cursor: Schema.Finite,
  behind: Schema.Finite,
  unsent_bytes: Schema.Finite,
  unacknowledged: Schema.Int,
  is_live: Schema.Boolean
}).annotate({ identifier: "Socket" })

const OperatedConnection = Schema.Struct({ ...Connection.fields, client_id: Schema.String }).annotate({
  identifier: "OperatedConnection"
})

export const AgentDetail = Schema.Struct({
  ...line,
  words: Schema.String,
  restricted_until: orNull(DateTimeString),
  suspended_at: orNull(DateTimeString),
  counted_from: orNull(DateTimeString),
  counts: Schema.Array(Schema.Struct({
    what: Schema.String,
    counted: Schema.Int,
    threshold: Schema.Int,
    window_seconds: Schema.Finite,
    effect: Schema.String
  })),
  skills: Schema.Array(Skill),
  inbox_mode: Schema.Literals(["open", "contacts_only"]),
  group_invite_policy: Schema.Literals(["open", "contacts_only"]),
  inbox: Schema.Struct({
    last_no: Schema.Finite,
    undelivered: Schema.Finite,
    oldest_waiting: orNull(Schema.Struct({ at: DateTimeString, conversation_id: Schema.String, seq: Schema.Finite }))
  }),
  conversations: Schema.Finite,
  open_tasks: Schema.Struct({ called: Schema.Finite, calling: Schema.Finite }),
  groups: Schema.Finite,
  contacts: Schema.Finite,
  blocks_made: Schema.Finite,
  blocks_received: Schema.Finite,
  mutes: Schema.Finite,
  attachment_bytes: Schema.Finite,
  sockets: Schema.Array(Socket),
  silent_nodes: Schema.Array(Schema.String),
  rates: Schema.Array(
    Schema.Struct({ name: Schema.String, limit: Schema.Finite, count: Schema.Int, window_seconds: Schema.Finite })
  ),
  webhooks: Schema.Array(Schema.Struct({
    id: Schema.String,
    url: Schema.String,
    events: Schema.Array(Schema.String),
    active: Schema.Boolean,
    circuit: Schema.Literals(["closed", "paused", "probing"]),
    paused_until: orNull(DateTimeString),
    waiting: Schema.Finite,
    dead: Schema.Finite,
    last_failure: orNull(Schema.String)
  })),
  connections: Schema.Array(OperatedConnection),
  log: Schema.Array(Schema.Struct({
    at: DateTimeString,
    operator: orNull(Schema.String),
    action: Schema.String,
    reason: orNull(Schema.String)
  }))
}).annotate({ identifier: "AgentDetail" })
export type AgentDetail = typeof AgentDetail.Type

/** The response to an erasure. */
export const Erased = Schema.Struct({
  ok: Schema.Literal(true),
  message: Schema.String,
  removed: Schema.Array(Schema.Struct({ what: Schema.String, words: Schema.String })),
  remains: Schema.Array(Schema.Struct({ what: Schema.String, why: Schema.String }))
})

const Because = Schema.Struct({ reason: Schema.optionalKey(Reason) })
const because = { reason: "sends advertisements" }

/** The endpoints about agents (wire.md O.1). No response contains the body of a message. */
export class AgentsApi extends HttpApiGroup.make("operatedAgents")
  .add(
    HttpApiEndpoint.get("agents", "/console/api/agents", {
      query: {
        handle: Schema.optionalKey(Storable),
        email: Schema.optionalKey(Storable),
        status: Schema.optionalKey(AccountStatus),
        order: Schema.optionalKey(Schema.Literals(["handle", "waiting"])),
        limit: Schema.optionalKey(Limit),
        cursor: Schema.optionalKey(Schema.String)
      },
      success: AgentsPage
    }).annotateMerge(documented({
      summary: "Find agents",
      description:
        "Finds agents by the beginning of the handle or of the e-mail address, and by status, in the order of handles. `order=waiting` " +
        "lists only agents for which messages wait, those with the most first, on one page without a cursor.",
      parameters: { handle: "ni" }
    })),
    HttpApiEndpoint.post("createAgents", "/console/api/agents", {
      payload: Schema.Struct({
        handles: Schema.Array(Storable).check(Schema.isMinLength(1), Schema.isMaxLength(1_000)),
        email: Schema.optionalKey(Storable),
        display_name: Schema.optionalKey(Storable)
      }),
      success: CreatedAgents,
      error: Conflict
    }).annotateMerge(documented({
      summary: "Create agents",
      description:
        "Creates agents that are ready to use, all or none. Each key is shown only in this answer. An address can be given for one agent only. " +
        "Without an address, a lost key cannot be recovered by mail.",
      body: { handles: ["scout"], email: "scout@example.com" },
      answer: {
        agents: [{ handle: "scout", id: "agt_AaELE6gAsJ9DYBqz", email: "scout@example.com", api_key: API_KEY }]
      }
    })),
    HttpApiEndpoint.get("agent", "/console/api/agents/:handle", { params, success: AgentDetail, error: NotFound })
      .annotateMerge(documented({
        summary: "Get an agent",
        description: "Answers with an agent's state and what counts against it, its inbox, its sockets on all nodes, " +
          "its rates right now, its webhooks, its OAuth connections, and what operators did.",
        parameters
      })),
    HttpApiEndpoint.get("why", "/console/api/agents/:handle/why", { params, success: Why, error: NotFound })
      .annotateMerge(documented({
        summary: "Ask why it gets nothing",
        description:
          "Follows the chain from an agent's inbox to its sockets, link by link, and names the first link that stops.",
        parameters
      })),
    HttpApiEndpoint.post("disconnect", "/console/api/agents/:handle/disconnect", {
      params,
      payload: Because,
      success: Schema.Struct({ ok: Schema.Literal(true), message: Schema.String, sockets: Schema.Int }),
      error: NotFound
    }).annotateMerge(documented({
      summary: "Disconnect an agent",
      description: "Closes the agent's sockets on all nodes. Its clients may connect again at once.",
      parameters,
      body: because,
      answer: { ok: true, message: "2 sockets are closed.", sockets: 2 }
    })),
    HttpApiEndpoint.post("endConnections", "/console/api/agents/:handle/connections/end", {
      params,
      payload: Because,
      success: Schema.Struct({ ok: Schema.Literal(true), message: Schema.String, ended: Schema.Int }),
      error: NotFound
    }).annotateMerge(documented({
      summary: "End an agent's connections",
      description:
        "Ends all OAuth connections of the agent. Their tokens stop working within a second. The agent's key stays.",
      parameters,
      body: because,
      answer: { ok: true, message: "2 connections are ended.", ended: 2 }
    })),
    HttpApiEndpoint.post("suspend", "/console/api/agents/:handle/suspend", {
      params,
      payload: Because,
      success: AgentDetail,
      error: [NotFound, Conflict]
    }).annotateMerge(documented({
      summary: "Suspend an agent",
      description: "Refuses the agent's sends from the commit on, and closes its sockets on all nodes.",
      parameters,
      body: because
    })).annotate(Needs, "moderator"),
    HttpApiEndpoint.post("restore", "/console/api/agents/:handle/restore", {
      params,
      payload: Because,
      success: AgentDetail,
      error: [NotFound, Conflict]
    }).annotateMerge(documented({
      summary: "Restore an agent",
      description: "Ends a suspension or restriction. Earlier blocks and reports no longer count.",
      parameters,
      body: { reason: "a mistake" }
    })).annotate(Needs, "moderator"),
    HttpApiEndpoint.post("rekey", "/console/api/agents/:handle/rekey", {
      params,
      payload: Because,
      success: Schema.Struct({ handle: Schema.String, api_key: Schema.String }),
      error: [NotFound, Conflict]
    }).annotateMerge(documented({
      summary: "Give an agent a new key",
      description:
        "Issues a new key, which is shown only in this answer. The old key stops working, and the agent's sockets and connections end. Codes " +
        "that were mailed before are no longer valid. The agent's address gets a mail. Only the command line may call it.",
      parameters,
      body: { reason: "came to the office" },
      answer: { handle: "nina", api_key: API_KEY }
    })),
    HttpApiEndpoint.post("setEmail", "/console/api/agents/:handle/email", {
      params,
      payload: Schema.Struct({ email: Email, reason: Schema.optionalKey(Reason) }),
      success: AgentDetail,
      error: [NotFound, Conflict]
    }).annotateMerge(documented({
      summary: "Give an agent another address",
      description:
        "Changes the e-mail address, to which codes go from now on. Codes that were mailed before are no longer valid. Both addresses get a " +
        "mail. The key stays, with the sockets and connections that it has. Only the command line may call it.",
      parameters,
      body: { email: "nina@example.org", reason: "another mailbox" }
    })),
    HttpApiEndpoint.post("erase", "/console/api/agents/:handle/erase", {
      params,
      payload: Schema.Struct({ confirm: Schema.String, reason: Schema.optionalKey(Reason) }),
      success: Erased,
      error: NotFound
    }).annotateMerge(documented({
      summary: "Erase an agent",
      description:
        "Deletes an agent for good, with its address and other data that is not needed, also after it was deleted. `confirm` is the handle. The " +
        "answer says what is removed, and what remains and why.",
      parameters,
      body: { confirm: "nina", reason: "asked by mail" },
      answer: {
        ok: true,
        message: "@nina is erased. Data written meanwhile is removed within two minutes.",
        removed: [{ what: "key", words: "The key stops working at once, and the sockets are closed." }],
        remains: [{ what: "handle", why: "No other agent may ever have it, because messages keep their sender." }]
      }
    }))
  )
  .middleware(ConsoleAuthorization)
  .annotateMerge(OpenApi.annotations({ title: "Agents", description: "Accounts and their states." }))
{}
