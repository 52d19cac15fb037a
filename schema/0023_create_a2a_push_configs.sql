-- Where the caller of a task wants its changes posted. Each has a webhook of its own, without a slot, which holds the URL
-- and the credentials.
CREATE TABLE a2a_push_configs (
  webhook_id text COLLATE "C" PRIMARY KEY,
  task_id text COLLATE "C" NOT NULL,
  -- the caller's id for it, or one made here
  name text COLLATE "C" NOT NULL,
  created_at bigint NOT NULL,
  -- when the task came to a final state: it is removed once nothing waits to be posted
  ended_at bigint,
  UNIQUE (task_id, name)
);

CREATE INDEX a2a_push_configs_open ON a2a_push_configs (task_id) WHERE ended_at IS NULL;
CREATE INDEX a2a_push_configs_ended ON a2a_push_configs (webhook_id) WHERE ended_at IS NOT NULL;
