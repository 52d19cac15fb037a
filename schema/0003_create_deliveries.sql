-- A recipient's numbers are dense and in commit order, because this row is locked until the commit that raises it.
CREATE TABLE inboxes (
  agent_id text COLLATE "C" PRIMARY KEY,
  last_no bigint NOT NULL DEFAULT 0,
  -- envelopes with delivered_at null; changes only in the statement that changes them
  undelivered bigint NOT NULL DEFAULT 0,
  -- no envelope up to this number waits any more: where to begin looking for those that do
  delivered_through bigint NOT NULL DEFAULT 0
);

CREATE TABLE envelopes (
  recipient_id text COLLATE "C" NOT NULL,
  no bigint NOT NULL,
  conversation_id text COLLATE "C" NOT NULL,
  seq bigint NOT NULL,
  sender_id text COLLATE "C" NOT NULL,
  delivered_at bigint,
  read_at bigint,
  PRIMARY KEY (recipient_id, no)
)
-- No index on delivered_at, and room on each page: acknowledging an envelope touches no index.
WITH (fillfactor = 50);

-- Does not begin like the primary key: a planner that sees an empty table must not take the one for the other.
CREATE UNIQUE INDEX envelopes_by_seq ON envelopes (conversation_id, recipient_id, seq);
