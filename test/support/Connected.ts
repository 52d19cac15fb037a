import { randomBytes } from "node:crypto"
import { Client } from "pg"
import type { Server, TestAgent } from "./Server.ts"

/**
 * Writes the row of a connection of the agent, as an OAuth sign-in does, and returns its id. The server must use
 * PostgreSQL.
 */
export const connected = async (
  { place }: Server,
  agent: TestAgent,
  clientName: string | null = null
): Promise<string> => {
  const client = new Client({ connectionString: place["DATABASE_URL"] })
  await client.connect()
  try {
    const id = `con_${randomBytes(12).toString("base64url")}`
    const { rowCount } = await client.query(
      `
      INSERT INTO oauth_connections
        (id, agent_id, key_hash, client_id, client_name, client_host, redirect_uri, scopes, created_at, used_at, expires_at)
      SELECT $1, id, key_hash, 'https://host.example/c', $4::text, CASE WHEN $4::text IS NULL THEN 'host.example' END, 'https://host.example/cb',
        'agent:read', $3::bigint, $3::bigint, $3::bigint + 60000
      FROM agents WHERE id = $2`,
      [id, agent.id, Date.now(), clientName]
    )
    if (rowCount !== 1) throw new Error(`${agent.handle} has no account`)
    return id
  } finally {
    await client.end()
  }
}
