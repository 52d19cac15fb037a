/**
 * The events that a webhook can subscribe to. An event's index is its bit in `agents.webhook_events`, so
 * it never changes.
 */
export const webhookEvents = [
  "message.new",
  "message.read",
  "presence.update",
  "contact.blocked",
  "group.invite.received",
  "group.deleted"
] as const

export type WebhookEvent = typeof webhookEvents[number]

/** A task of A2A has changed: posted to the webhooks of its caller's push configurations; nobody can subscribe to it. */
export const TASK_EVENT = "a2a.task"

export const eventBit = (event: WebhookEvent): number => 1 << webhookEvents.indexOf(event)

/**
 * SQL condition on a row of `agents`: whether it may have a webhook for an event. Costs no look-up, and
 * keeps events for agents without webhooks away from the outbox.
 */
export const mayHook = (agents: string, event: WebhookEvent): string => `(${agents}.webhook_events & ${eventBit(event)}) <> 0`

/**
 * The part of an event's own statement that writes the event to the outbox. `rows` selects `agent_id`
 * (the agent that the event is for), `subject` (what the event's data is made from, see EventData.ts), `at`
 * and `request` (the id of the request that caused it, or null); it should leave out the agents that
 * `mayHook` rules out. After the commit the caller calls `WebhookSignals.raise`.
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
 * The same for webhooks that are known: `rows` selects `webhook_id`, `subject` and `at`. After the commit the caller wakes
 * those of them that come back as `webhook_id`.
 */
export const intoOutboxOf = (event: typeof TASK_EVENT, rows: string): string => `
  INSERT INTO webhook_deliveries (webhook_id, event, subject, created_at, due_at)
  SELECT w.id, '${event}', r.subject, r.at, r.at
  FROM (${rows}) r
  JOIN LATERAL (SELECT id FROM webhooks WHERE id = r.webhook_id AND deleted_at IS NULL AND active OFFSET 0) w ON true
  RETURNING webhook_id`

/**
 * SQL query for those of many agents that have a webhook for an event, as `agent_id`: for statements that
 * do not read the agents' rows. To be tested with `IN`, under `IS TRUE`.
 */
export const hookedAmong = (event: WebhookEvent, agentIds: string): string => `
  SELECT agent_id FROM webhooks
  WHERE agent_id = ANY (ARRAY(${agentIds})) AND slot IS NOT NULL AND active AND '${event}' = ANY (events)`

/** SQL condition: at that time the agent mutes neither this sender nor this conversation (wire.md G.11). */
export const unmuted = (agent: string, sender: string, conversation: string, at: string): string => {
  // One look-up by key each: the planner would turn an EXISTS into a join, and read all mutes.
  const mute = (kind: "agent" | "conversation", target: string): string =>
    `(SELECT true FROM mutes m WHERE m.muter_id = ${agent} AND m.kind = '${kind}' AND m.target_id = ${target}
      AND (m.muted_until IS NULL OR m.muted_until > ${at})) IS NULL`
  return `${mute("agent", sender)} AND ${mute("conversation", conversation)}`
}
