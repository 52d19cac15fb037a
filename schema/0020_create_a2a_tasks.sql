-- Conversations in which a task was ever made, and how far their messages have been taken into account. A task's state is
-- derived from the messages; only a cancellation is not, which is decided on the locked conversation.
CREATE TABLE a2a_conversations (
  conversation_id text COLLATE "C" PRIMARY KEY,
  through_seq bigint NOT NULL,
  -- raised by every write: a writer that read an older one reads again
  version bigint NOT NULL DEFAULT 0
);

CREATE TABLE a2a_tasks (
  -- the id of its first message
  id text COLLATE "C" PRIMARY KEY,
  conversation_id text COLLATE "C" NOT NULL,
  seq bigint NOT NULL,
  caller_id text COLLATE "C" NOT NULL,
  recipient_id text COLLATE "C" NOT NULL,
  state text NOT NULL,
  -- not in a final state
  open boolean NOT NULL,
  updated_at bigint NOT NULL,
  -- how many there have been; the log has the last of them, as JSON
  changes integer NOT NULL,
  log text NOT NULL
);

CREATE INDEX a2a_tasks_open ON a2a_tasks (conversation_id, seq) WHERE open;
CREATE INDEX a2a_tasks_listed ON a2a_tasks (conversation_id, caller_id, updated_at, id);
