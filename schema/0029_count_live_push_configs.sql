-- The agent for whose limit a configuration counts. Null once the configuration can post no more: its task has ended and nothing
-- waits, or its webhook is gone. It is cleared when the agent reaches the limit, so at most as many rows as the limit have it.
-- Rows that nodes of the old version insert during a rolling restart have null, and never count.
ALTER TABLE a2a_push_configs ADD COLUMN counts_for text COLLATE "C";
UPDATE a2a_push_configs p SET counts_for = w.agent_id FROM webhooks w WHERE w.id = p.webhook_id AND w.deleted_at IS NULL;
CREATE INDEX a2a_push_configs_counted ON a2a_push_configs (counts_for) WHERE counts_for IS NOT NULL;
