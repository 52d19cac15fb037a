/** What a webhook can ask for; an event's place here is its bit in `agents.webhook_events`, so it never changes. */
export const webhookEvents = [
  "message.new",
  "message.read",
  "presence.update",
  "contact.blocked",
  "group.invite.received",
  "group.deleted"
] as const

export type WebhookEvent = typeof webhookEvents[number]

export const eventBit = (event: WebhookEvent): number => 1 << webhookEvents.indexOf(event)

/** Whether a row of `agents` may have a webhook for an event: costs no look-up, and keeps the outbox from agents without. */
export const mayHook = (agents: string, event: WebhookEvent): string => `(${agents}.webhook_events & ${eventBit(event)}) <> 0`

/**
 * The part of an event's own statement that writes it to the outbox. `rows` selects
 * `agent_id` (whom the event is for), `subject` (what its data is made from, see
 * EventData.ts), `at` and `request` (the id of the request behind it, or null); whom `mayHook`
 * rules out should not be among them. After the commit `WebhookSignals.raise` says that
 * there is something to do.
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
 * Which of many agents have a webhook for an event, as `agent_id`: for statements that
 * do not read their rows in `agents`. To be tested with `IN`, under `IS TRUE`.
 */
export const hookedAmong = (event: WebhookEvent, agentIds: string): string => `
  SELECT agent_id FROM webhooks
  WHERE agent_id = ANY (ARRAY(${agentIds})) AND slot IS NOT NULL AND active AND '${event}' = ANY (events)`

/** True when what comes from this sender, or in this conversation, is not muted by the agent at that time (wire.md G.11). */
export const unmuted = (agent: string, sender: string, conversation: string, at: string): string => {
  // By key each: the planner would make a join of an EXISTS, and read all mutes.
  const mute = (kind: "agent" | "conversation", target: string): string =>
    `(SELECT true FROM mutes m WHERE m.muter_id = ${agent} AND m.kind = '${kind}' AND m.target_id = ${target}
      AND (m.muted_until IS NULL OR m.muted_until > ${at})) IS NULL`
  return `${mute("agent", sender)} AND ${mute("conversation", conversation)}`
}
