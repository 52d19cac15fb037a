/**
 * The events that a webhook can subscribe to. The index of an event is its bit in `agents.webhook_events`, so the order
 * must never change.
 */
export const webhookEvents = [
  "message.new",
  "message.read",
  "presence.update",
  "contact.blocked",
  "group.invite.received",
  "group.deleted",
  "message.reaction",
  "message.outcome"
] as const

export type WebhookEvent = typeof webhookEvents[number]

/**
 * The event of a changed A2A task. It is posted to the push configurations of the task's caller. Agents cannot
 * subscribe to it with a webhook.
 */
export const TASK_EVENT = "a2a.task"

/**
 * The event of a webhook that follows an inbox (MCP Events, the wake webhook). Agents cannot subscribe to it, and
 * statements that store messages do not write it.
 */
export const INBOX_EVENT = "inbox"

export const eventBit = (event: WebhookEvent): number => 1 << webhookEvents.indexOf(event)

/**
 * SQL condition on a row of `agents`: whether the agent may have a webhook for an event. The condition costs no
 * look-up, and excludes agents without webhooks from the writes to the outbox.
 */
export const mayHook = (agents: string, event: WebhookEvent): string =>
  `(${agents}.webhook_events & ${eventBit(event)}) <> 0`

/**
 * The part of a statement that writes its event to the outbox. `rows` selects `agent_id` (the agent that the event is
 * for), `subject` (the source of the event's data, see EventData.ts), `at`, and `request` (the id of the request that
 * caused the event, or null). `rows` should use `mayHook` to exclude agents without webhooks. After the commit, the
 * caller calls `WebhookSignals.raise`.
 */
export const intoOutbox = (event: WebhookEvent, rows: string): string => `
  INSERT INTO webhook_deliveries (webhook_id, event, subject, created_at, due_at, request_id)
  SELECT w.id, '${event}', r.subject, r.at, r.at, r.request
  FROM (${rows}) r
  JOIN LATERAL (
    SELECT id FROM webhooks WHERE agent_id = r.agent_id AND slot IS NOT NULL AND active AND '${event}' = ANY (events)
    OFFSET 0
  ) w ON true`

/**
 * Like `intoOutbox`, but for known webhooks: `rows` selects `webhook_id`, `subject` and `at`. The statement returns the
 * `webhook_id`s with a new row, and the caller wakes these webhooks after the commit.
 */
export const intoOutboxOf = (event: typeof TASK_EVENT, rows: string): string => `
  INSERT INTO webhook_deliveries (webhook_id, event, subject, created_at, due_at)
  SELECT w.id, '${event}', r.subject, r.at, r.at
  FROM (${rows}) r
  JOIN LATERAL (SELECT id FROM webhooks WHERE id = r.webhook_id AND deleted_at IS NULL AND active OFFSET 0) w ON true
  RETURNING webhook_id`

/**
 * SQL query that returns, as `agent_id`, those of the given agents that have a webhook for an event. A webhook that
 * follows an inbox counts as a webhook for `message.new`. Use it in statements that do not read rows of `agents`, as
 * `agent_id IN (…) IS TRUE`.
 */
export const hookedAmong = (event: WebhookEvent, agentIds: string): string => `
  SELECT agent_id FROM webhooks
  WHERE agent_id = ANY (ARRAY(${agentIds})) AND active
    AND (slot IS NOT NULL AND '${event}' = ANY (events)${event === "message.new" ? " OR inbox_no IS NOT NULL" : ""})`

/** SQL condition: whether the agent mutes neither this sender nor this conversation at time `at` (wire.md G.11). */
export const unmuted = (agent: string, sender: string, conversation: string, at: string): string => {
  // Each subquery is one look-up by key. The planner would turn an EXISTS into a join, and read all mutes.
  const mute = (kind: "agent" | "conversation", target: string): string =>
    `(SELECT true FROM mutes m WHERE m.muter_id = ${agent} AND m.kind = '${kind}' AND m.target_id = ${target}
      AND (m.muted_until IS NULL OR m.muted_until > ${at})) IS NULL`
  return `${mute("agent", sender)} AND ${mute("conversation", conversation)}`
}

/**
 * SQL condition: whether a block keeps an event about a message from its sender (wire.md G.9). Inside a group, a block
 * changes nothing.
 */
export const blockedBetween = (sender: string, recipient: string, conversation: string): string =>
  `(left(${conversation}, 4) <> 'grp_' AND EXISTS (
    SELECT FROM blocks b
    WHERE (b.agent_id = ${recipient} AND b.blocked_id = ${sender}) OR (b.agent_id = ${sender} AND b.blocked_id = ${recipient})
  ))`
