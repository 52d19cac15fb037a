import { Client } from "pg"
import { DELIVERED, Final, markOf, partOf, READ } from "./Final.ts"
import { fingerprint, type History, Ints, type OutcomeState } from "./History.ts"
import { HttpPool, type Reply } from "./HttpPool.ts"

const ROWS = 20_000
/** The service's largest pages. */
const SYNC_PAGE = 500
const HISTORY_PAGE = 200

export interface ReadFinalOptions {
  readonly history: History
  readonly database: string
  /** The URL of a healthy node. */
  readonly url: string
  /** By agent, its key; undefined if the agent may no longer make requests. */
  readonly keys: ReadonlyArray<string | undefined>
  /** Conversations that each agent reads to the end, besides its inbox and its unread counts. */
  readonly readings?: number
}

/** Reads the final state of the agents of a history from storage, and a part of it through the service. */
export const readFinal = async (options: ReadFinalOptions): Promise<Final> => {
  const final = new Final()
  const client = new Client(options.database)
  await client.connect()
  try {
    await readStored(client, options.history, final)
  } finally {
    await client.end()
  }
  const pool = new HttpPool()
  try {
    for (const [agent, key] of options.keys.entries()) {
      if (key !== undefined) await readShown(pool, options, final, agent, key)
    }
  } finally {
    pool.close()
  }
  return final
}

type Cell = string | number | boolean | null

const readStored = async (client: Client, history: History, final: Final): Promise<void> => {
  // pg returns a bigint as a text.
  const query = async (text: string, values: ReadonlyArray<unknown>): Promise<ReadonlyArray<ReadonlyArray<Cell>>> =>
    (await client.query<Array<Cell>>({ text, values: [...values], rowMode: "array" })).rows
  const agents = history.agents.map(({ id }) => id)

  for (
    const [agentId, id, counterparty, hidden] of await query(
      "SELECT agent_id, conversation_id, counterparty_id, hidden_through FROM participants WHERE agent_id = ANY($1)",
      [agents]
    )
  ) {
    const agent = history.agent(String(agentId))
    let conversation = history.conversation(String(id))
    if (conversation < 0 && counterparty !== null && history.agent(String(counterparty)) >= 0) {
      conversation = history.direct(agent, history.agent(String(counterparty)))
      history.name(conversation, String(id))
    } else if (conversation < 0) conversation = history.addGroup(String(id))
    final.cutoffs.set(partOf(agent, conversation), Number(hidden))
  }
  const ids = history.conversations.flatMap(({ id }) => (id === undefined ? [] : [id]))
  for (const [id, lastSeq] of await query("SELECT id, last_seq FROM conversations WHERE id = ANY($1)", [ids])) {
    final.lastSeq.set(history.conversation(String(id)), Number(lastSeq))
  }

  let after: readonly [string, number] = ["", 0]
  for (let full = true; full;) {
    const rows = await query(
      `SELECT conversation_id, seq, id, sender_id, client_msg_id, CASE WHEN type = 'system' THEN content END,
        type = 'system' OR position(client_msg_id IN content) > 0
      FROM messages WHERE conversation_id = ANY($1) AND (conversation_id, seq) > ($2, $3)
      ORDER BY conversation_id, seq LIMIT ${ROWS}`,
      [ids, ...after]
    )
    for (const [conversationId, seqText, id, senderId, clientMsgId, system, sound] of rows) {
      const conversation = history.conversation(String(conversationId))
      const seq = Number(seqText)
      const sender = history.agent(String(senderId))
      after = [String(conversationId), seq]
      final.messages.conversation.push(conversation)
      final.messages.seq.push(seq)
      final.messages.send.push(history.sendOf(String(clientMsgId)))
      final.messages.sender.push(sender)
      final.messages.message.push(fingerprint(String(id)))
      if (sound !== true)
        final.unsound.push(`${String(id)} has another content than was sent as ${String(clientMsgId)}`)
      if (typeof system === "string") {
        const { data } = JSON.parse(system) as {
          readonly data: { readonly event: string; readonly agent_handle?: string }
        }
        final.systems.push({
          conversation,
          seq,
          sender,
          event: data.event,
          agent: data.agent_handle === undefined ? -1 : history.agent(data.agent_handle)
        })
      }
    }
    full = rows.length === ROWS
  }

  after = ["", 0]
  for (let full = true; full;) {
    const rows = await query(
      `SELECT recipient_id, no, conversation_id, seq, delivered_at IS NOT NULL, read_at IS NOT NULL
      FROM envelopes WHERE recipient_id = ANY($1) AND (recipient_id, no) > ($2, $3) ORDER BY recipient_id, no LIMIT ${ROWS}`,
      [agents, ...after]
    )
    const { envelopes } = final
    for (const [recipientId, inboxNo, conversationId, seq, delivered, read] of rows) {
      after = [String(recipientId), Number(inboxNo)]
      envelopes.recipient.push(history.agent(String(recipientId)))
      envelopes.inboxNo.push(Number(inboxNo))
      envelopes.conversation.push(history.conversation(String(conversationId)))
      envelopes.seq.push(Number(seq))
      envelopes.state.push((delivered === true ? DELIVERED : 0) | (read === true ? READ : 0))
    }
    full = rows.length === ROWS
  }

  for (
    const [agentId, lastInboxNo, undelivered] of await query(
      "SELECT agent_id, last_no, undelivered FROM inboxes WHERE agent_id = ANY($1)",
      [agents]
    )
  )
    final.inboxes.set(history.agent(String(agentId)), {
      lastInboxNo: Number(lastInboxNo),
      undelivered: Number(undelivered)
    })

  const members = new Map<string, Array<number>>()
  for (
    const [id, agentId] of await query(
      "SELECT group_id, agent_id FROM group_members WHERE group_id = ANY($1) AND left_at IS NULL",
      [ids]
    )
  ) {
    const known = members.get(String(id))
    if (known === undefined) members.set(String(id), [history.agent(String(agentId))])
    else known.push(history.agent(String(agentId)))
  }
  for (
    const [id, creator, count, deletedAt] of await query(
      "SELECT id, creator_id, member_count, deleted_at FROM groups WHERE id = ANY($1)",
      [ids]
    )
  ) {
    final.groups.set(history.conversation(String(id)), {
      creator: history.agent(String(creator)),
      memberCount: Number(count),
      members: members.get(String(id)) ?? [],
      deleted: deletedAt !== null
    })
  }
  const hidden = new Map<number, Set<number>>()
  for (
    const [agentId, id, seq] of await query(
      "SELECT agent_id, conversation_id, seq FROM hidden_messages WHERE agent_id = ANY($1)",
      [agents]
    )
  ) {
    const part = partOf(history.agent(String(agentId)), history.conversation(String(id)))
    hidden.set(part, (hidden.get(part) ?? new Set()).add(Number(seq)))
  }
  for (const [part, seqs] of hidden) final.hidden.set(part, seqs)
  for (
    const [agentId, id, seq, emoji] of await query(
      "SELECT agent_id, conversation_id, seq, emoji FROM reactions WHERE agent_id = ANY($1)",
      [agents]
    )
  ) {
    final.reactions.add(
      markOf(history.agent(String(agentId)), history.conversation(String(id)), Number(seq), String(emoji))
    )
  }
  for (
    const [agentId, id, seq, state] of await query(
      "SELECT recipient_id, conversation_id, seq, state FROM outcomes WHERE recipient_id = ANY($1)",
      [agents]
    )
  ) {
    final.outcomes.set(
      markOf(history.agent(String(agentId)), history.conversation(String(id)), Number(seq)),
      String(state) as OutcomeState
    )
  }

  for (
    const [what, id] of await query(
      `SELECT 'two messages with one key', min(m.id) FROM messages m
      WHERE m.conversation_id = ANY($2) AND m.type <> 'system'
      GROUP BY m.sender_id, m.client_msg_id HAVING count(*) > 1
    UNION ALL
    SELECT 'a cold slot that is not a cold conversation''s', COALESCE(c.id, s.conversation_id)
      FROM (SELECT * FROM cold_slots WHERE agent_id = ANY($1) AND claimed_at IS NOT NULL) s
      FULL JOIN (SELECT * FROM conversations WHERE id = ANY($2) AND initiator_id IS NOT NULL AND established_at IS NULL) c
        ON c.id = s.conversation_id
      WHERE s.agent_id IS DISTINCT FROM c.initiator_id OR s.claimed_at IS DISTINCT FROM c.created_at`,
      [agents, ids]
    )
  ) final.unsound.push(`${String(what)}: ${String(id)}`)
}

interface ShownRow {
  readonly id: string
  readonly conversation_id: string
  readonly seq: number
  readonly delivery_id: string
}

interface ShownConversation {
  readonly id: string
  readonly unread_count: number
  readonly oldest_unread_seq: number | null
  readonly newest_unread_seq: number | null
}

const readShown = async (
  pool: HttpPool,
  { history, readings = 3, url }: ReadFinalOptions,
  final: Final,
  agent: number,
  key: string
): Promise<void> => {
  const get = async (path: string): Promise<unknown> => {
    let reply: Reply | undefined
    for (let tries = 0; tries < 5; tries++) {
      reply = await pool.request(url, "GET", path, key, undefined, 30_000)
      if (reply.status === 200) return JSON.parse(reply.text)
      await new Promise((resolve) => setTimeout(resolve, reply?.retryAfterMs ?? 1_000))
    }
    throw new Error(`GET ${path} as @${history.agents[agent]?.handle} answered ${reply?.status}: ${reply?.text}`)
  }

  const offer = { agent, conversation: new Ints(), seq: new Ints() }
  for (let after = "", full = true; full;) {
    // The contract tests are about shapes; here they are taken as given.
    const page = await get(`/v1/messages/sync?limit=${SYNC_PAGE}${after}`) as ReadonlyArray<ShownRow>
    for (const row of page) {
      offer.conversation.push(history.conversation(row.conversation_id))
      offer.seq.push(row.seq)
    }
    after = `&after=${page.at(-1)?.delivery_id}`
    full = page.length === SYNC_PAGE
  }
  final.offers.push(offer)

  const listed: Array<ShownConversation> = []
  for (let full = true; full;) {
    const page = await get(`/v1/conversations?limit=200&offset=${listed.length}`) as ReadonlyArray<ShownConversation>
    listed.push(...page)
    full = page.length === 200
  }
  for (const row of listed) {
    final.unread.push({
      agent,
      conversation: history.conversation(row.id),
      count: row.unread_count,
      oldest: row.oldest_unread_seq,
      newest: row.newest_unread_seq
    })
  }

  for (const { id } of listed.slice(0, readings)) {
    const reading = { agent, conversation: history.conversation(id), seq: new Ints(), message: new Ints() }
    for (let last = 0, full = true; full;) {
      const page = await get(`/v1/messages/${id}?limit=${HISTORY_PAGE}&after_seq=${last}`) as ReadonlyArray<ShownRow>
      for (const row of page) {
        reading.seq.push(row.seq)
        reading.message.push(fingerprint(row.id))
      }
      last = page.at(-1)?.seq ?? 0
      full = page.length === HISTORY_PAGE
    }
    final.readings.push(reading)
  }
}
