-- What an agent said against another: once for each pair, for ever, whatever becomes of the block.
CREATE TABLE reports (
  agent_id text COLLATE "C" NOT NULL,
  reported_id text COLLATE "C" NOT NULL,
  id text COLLATE "C" NOT NULL UNIQUE,
  reason text,
  created_at bigint NOT NULL,
  PRIMARY KEY (agent_id, reported_id)
);

-- The list of one's own blocks, newest first.
CREATE INDEX blocks_by_age ON blocks (agent_id, created_at, blocked_id);

-- The directory: whom it shows, in its order, so that a prefix is a range.
CREATE INDEX agents_listed ON agents (handle) WHERE deleted_at IS NULL AND status <> 'suspended';
