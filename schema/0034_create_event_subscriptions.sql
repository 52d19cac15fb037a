-- MCP Events by webhook, and the wake webhook (wire.md Q). Each has a webhook without a slot. Such a webhook follows the inbox of its
-- agent: its outbox holds the one event that is posted next, and the event after it is read from the inbox when that one is done.

-- The inbox number up to which everything was put in the outbox or need not be. Null for webhooks that follow no inbox.
ALTER TABLE webhooks ADD COLUMN inbox_no bigint;
-- When an event was last put in the outbox.
ALTER TABLE webhooks ADD COLUMN told_at bigint;
-- When to look into the inbox again, although nothing has come: what is there is held back. Null if nothing is.
ALTER TABLE webhooks ADD COLUMN look_at bigint;

CREATE TABLE event_subscriptions (
  webhook_id text COLLATE "C" PRIMARY KEY,
  -- a hash of agent, URL, name and arguments
  id text COLLATE "C" NOT NULL UNIQUE,
  agent_id text COLLATE "C" NOT NULL,
  -- the event, or 'agent.wake' for the wake webhook
  name text COLLATE "C" NOT NULL,
  -- JSON in its canonical form
  arguments text NOT NULL,
  -- a subscription ends with the key that the agent had, and with the connection of OAuth by which it was made
  key_hash bytea NOT NULL,
  connection_id text COLLATE "C",
  -- signs beside the webhook's secret until then
  old_secret text,
  old_secret_until bigint,
  -- when the URL last answered a challenge
  verified_at bigint NOT NULL,
  created_at bigint NOT NULL,
  -- null for the wake webhook
  expires_at bigint
);

CREATE INDEX event_subscriptions_of_agent ON event_subscriptions (agent_id);
