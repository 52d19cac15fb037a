import { type OwnedTable, SELF, SMALL } from "#infrastructure/database/Tables"

const CLIENT = ["client_id", "client_name", "client_host", "redirect_uri", "scopes"]

const SWEEP = { job: "oauth", every: "10 minutes", column: "expires_at" } as const

/** The tables of the OAuth sign-in: requests of hosts, and grants that people have permitted. */
export const oauthTables: ReadonlyArray<OwnedTable> = [
  {
    table: "oauth_requests",
    retention: { expires: [SWEEP] },
    notExported: "questions of hosts to a browser, for 15 minutes; what was permitted is in connections.jsonl"
  },
  {
    table: "oauth_connections",
    retention: { expires: [SWEEP] },
    deletion: "deletes",
    erasure: { removes: ["connections"], keeps: [] },
    exports: [
      {
        name: "connections",
        about: "The hosts that may act for it.",
        columns: ["id", ...CLIENT, "created_at", "used_at", "expires_at"],
        without: { agent_id: SELF, key_hash: "could be used to find the key" },
        key: [["id", "text"]],
        mine: "t.agent_id = $1",
        slice: SMALL
      }
    ]
  },
  {
    table: "oauth_tokens",
    retention: { expires: [SWEEP] },
    notExported: "hashes of tokens; the connections that they belong to are in connections.jsonl"
  },
  {
    table: "oauth_refusals",
    retention: { kept: "operators refuse a client until they allow it again" },
    notExported: "programs and sites that operators have refused"
  },
  {
    table: "oauth_documents",
    retention: { expires: [SWEEP] },
    notExported: "public descriptions of hosts, cached"
  }
]
