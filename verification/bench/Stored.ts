import type { Client } from "pg"
import { connected } from "./Database.ts"

/** The number of established direct conversations that each agent began. */
const CONVERSATIONS = 10
/** The number of messages in each conversation. */
const MESSAGES = 100
const PER_AGENT = CONVERSATIONS * MESSAGES
/** Messages in one statement. */
const CHUNK = 100_000
/** Tables with a row for each message. */
const TABLES = ["messages", "envelopes"]

const id = (prefix: string, of: string, at: string): string =>
  `'${prefix}_' || translate(encode(substring(int8send(${at}) FROM 3) || substring(decode(md5('${prefix}' || ${of}), 'hex') FROM 1 FOR 6), 'base64'), '+/', '-_')`

const agentId = (n: string): string => id("agt", n, "1700000000000")
const conversationId = (n: string): string => id("conv", n, "0")
/** SQL for the other agent of conversation `c`, besides the one that began it. */
const other = (c: string, agents: number): string => `((${c} % ${agents} + 1 + ${c} / ${agents}) % ${agents})`

const agents = (count: number): string => `
WITH made AS (
  INSERT INTO agents (id, handle, email, key_hash, created_at, updated_at)
  SELECT ${
  agentId("n")
}, 'stored-' || n, 'stored-' || n || '@agents.example', sha256(convert_to(n::text, 'UTF8')), 1700000000000, 1700000000000
  FROM generate_series(0, ${count - 1}) AS n
  RETURNING id
)
INSERT INTO inboxes (agent_id, last_no, delivered_through) SELECT id, ${PER_AGENT}, ${PER_AGENT} FROM made`

const conversations = (count: number, from: string): string => `
WITH pairs AS MATERIALIZED (
  SELECT ${conversationId("c")} AS id, ${agentId(`(c % ${count})`)} AS one, ${agentId(other("c", count))} AS other
  FROM generate_series(0, ${count * CONVERSATIONS - 1}) AS c
), sides AS (
  SELECT id, one AS agent, other AS counterparty FROM pairs UNION ALL SELECT id, other, one FROM pairs
), met AS (
  INSERT INTO participants (agent_id, conversation_id, counterparty_id) SELECT agent, id, counterparty FROM sides
), known AS (
  INSERT INTO contacts (agent_id, contact_id, added_at) SELECT agent, counterparty, ${from} FROM sides
)
INSERT INTO conversations (id, kind, epoch, last_seq, last_message_at, created_at, initiator_id, established_at)
SELECT id, 'direct', 1, ${MESSAGES}, ${from} + 1000, ${from}, one, ${from} FROM pairs`

/**
 * SQL for messages in a realistic order. Each is in another conversation than the previous one, and the two sides of a
 * conversation take turns. An agent gets one message in each of its conversations before the second in any, so that its
 * inbox numbers are dense.
 */
const messages = (count: number, from: string): string => `
WITH made AS MATERIALIZED (
  SELECT c, seq, at, ${conversationId("c")} AS conversation, ${id("msg", "g", "at")} AS id, md5(g::text) AS key,
    ${agentId("sender")} AS sender, ${
  agentId("recipient")
} AS recipient, (seq - 1) * ${CONVERSATIONS} + c / ${count} + 1 AS no
  FROM (
    SELECT g, c, seq, at,
      CASE WHEN seq % 2 = 1 THEN one ELSE two END AS sender, CASE WHEN seq % 2 = 1 THEN two ELSE one END AS recipient
    FROM (
      SELECT g, c, g / ${count * CONVERSATIONS} + 1 AS seq, ${from} + g / 10 AS at, c % ${count} AS one, ${
  other("c", count)
} AS two
      FROM (SELECT g, g % ${count * CONVERSATIONS} AS c FROM generate_series($1::bigint, $2::bigint) AS g) AS numbered
    ) AS sides
  ) AS directed
), stored AS (
  INSERT INTO messages (conversation_id, seq, id, sender_id, client_msg_id, type, content, metadata, created_at)
  SELECT conversation, seq, id, sender, key, 'text', json_build_object('text', repeat('The quick brown fox jumps over the lazy dog. ', 3) || key)::text, '{}', at
  FROM made
)
INSERT INTO envelopes (recipient_id, no, conversation_id, seq, delivered_at, read_at)
SELECT recipient, no, conversation, seq, at + 5, at + 1000 FROM made`

interface Index {
  readonly drop: string
  readonly create: string
}

const indexesOf = async (client: Client): Promise<ReadonlyArray<Index>> => {
  const { rows } = await client.query<
    { readonly table: string; readonly name: string; readonly definition: string; readonly key: string | null }
  >(
    `SELECT i.indrelid::regclass::text AS table, i.indexrelid::regclass::text AS name,
      pg_get_indexdef(i.indexrelid) AS definition, pg_get_constraintdef(c.oid) AS key
    FROM pg_index i LEFT JOIN pg_constraint c ON c.conindid = i.indexrelid AND c.contype IN ('p', 'u')
    WHERE i.indrelid = ANY ($1::regclass[])`,
    [TABLES]
  )
  return rows.map(({ definition, key, name, table }) =>
    key === null
      ? { drop: `DROP INDEX ${name}`, create: definition }
      : {
        drop: `ALTER TABLE ${table} DROP CONSTRAINT ${name}`,
        create: `ALTER TABLE ${table} ADD CONSTRAINT ${name} ${key}`
      }
  )
}

/** The number of messages that `fill` stores for this `count`: rounded up, so that each agent has the same number. */
export const roundedUp = (count: number): number =>
  Math.max(3 * CONVERSATIONS, Math.ceil(count / PER_AGENT)) * PER_AGENT

/**
 * Fills the tables of a database that no server uses at the moment with delivered and read messages of agents that
 * never connect. It inserts rows in large sets and creates the indexes afterwards, because inserting rows one by one
 * would take hours.
 */
export const fill = async (url: string, count: number, say: (text: string) => void): Promise<void> => {
  const total = roundedUp(count)
  const people = total / PER_AGENT
  const begun = performance.now()
  const seconds = () => (performance.now() - begun) / 1_000
  const from = String(Date.now() - total)
  await connected(url, (one) =>
    connected(url, async (two) => {
      const clients = [one, two]
      for (const client of clients) {
        await client.query("SET synchronous_commit = off; SET maintenance_work_mem = '256MB'; SET work_mem = '64MB'")
      }
      const indexes = await indexesOf(one)
      for (const { drop } of indexes) await one.query(drop)
      await one.query(agents(people))
      await one.query(conversations(people, from))
      let next = 0
      let done = 0
      let told = 0
      await Promise.all(clients.map(async (client) => {
        while (next < total) {
          const begin = next
          const end = next = Math.min(total, begin + CHUNK)
          await client.query(messages(people, from), [begin, end - 1])
          done += end - begin
          if (seconds() - told < 5 && done < total) continue
          told = seconds()
          const perSecond = done / told
          say(
            `filling: ${done} of ${total} messages, ${perSecond.toFixed(0)}/s, ${
              ((total - done) / perSecond).toFixed(0)
            } s left before the indexes`
          )
        }
      }))
      const waiting = [...indexes]
      await Promise.all(clients.map(async (client) => {
        for (let index = waiting.shift(); index !== undefined; index = waiting.shift()) {
          await client.query(index.create)
          say(`filling: ${index.create.replace(/ USING .*/, "")}, after ${seconds().toFixed(0)} s`)
        }
      }))
      await one.query("VACUUM ANALYZE")
      await one.query("CHECKPOINT")
      say(`filled with ${total} messages of ${people} agents in ${seconds().toFixed(0)} s`)
    }))
}
