-- An address of an agent's own to which events are posted.
CREATE TABLE webhooks (
  id text COLLATE "C" PRIMARY KEY,
  agent_id text COLLATE "C" NOT NULL,
  -- which of the agent's webhooks this is, from 1: being unique makes the limit exact; null once deleted
  slot integer,
  url text NOT NULL,
  events text[] NOT NULL,
  -- signs what is posted, so it cannot be a hash
  secret text NOT NULL,
  -- false for good after too many dead deliveries in a row
  active boolean NOT NULL DEFAULT true,
  dead_in_a_row integer NOT NULL DEFAULT 0,
  -- the circuit: nothing is posted before, and then one delivery on trial
  paused_until bigint,
  created_at bigint NOT NULL,
  -- its deliveries are removed in bounded batches, then the row
  deleted_at bigint,
  UNIQUE (agent_id, slot)
);

CREATE INDEX webhooks_deleted ON webhooks (deleted_at) WHERE deleted_at IS NOT NULL;
CREATE INDEX webhooks_inactive ON webhooks (id) WHERE NOT active;

-- The outbox: written by the statement that makes the event, for each webhook that asked for it.
CREATE TABLE webhook_deliveries (
  no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  webhook_id text COLLATE "C" NOT NULL,
  event text COLLATE "C" NOT NULL,
  -- message.new: the message's id; else what the event's data is made from, as JSON
  subject text NOT NULL,
  created_at bigint NOT NULL,
  attempts integer NOT NULL DEFAULT 0,
  -- when to try (again); null once it is delivered or dead
  due_at bigint,
  finished_at bigint,
  delivered boolean,
  -- of the last failed attempt
  failure text
);

-- What waits comes first, in its order.
CREATE INDEX webhook_deliveries_by_webhook ON webhook_deliveries (webhook_id, due_at, no);
CREATE INDEX webhook_deliveries_finished ON webhook_deliveries (delivered, finished_at) WHERE finished_at IS NOT NULL;

-- For the operator: what could not be delivered, newest first, with times as times.
CREATE VIEW dead_webhook_deliveries AS
SELECT
  d.no, d.webhook_id, w.agent_id, a.handle, w.url, w.active, d.event, d.attempts, d.failure,
  to_timestamp(d.created_at / 1000.0) AS created_at,
  to_timestamp(d.finished_at / 1000.0) AS dead_at
FROM webhook_deliveries d
JOIN webhooks w ON w.id = d.webhook_id
JOIN agents a ON a.id = w.agent_id
WHERE d.delivered = false
ORDER BY d.finished_at DESC, d.no DESC;

-- Bits of the events that some webhook of the agent has ever asked for. A hint that keeps the outbox away from agents
-- without webhooks: set in the statement that makes a webhook, never cleared.
ALTER TABLE agents ADD COLUMN webhook_events integer NOT NULL DEFAULT 0;
