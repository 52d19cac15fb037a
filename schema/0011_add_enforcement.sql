-- Restriction ends by the clock, so it is a time and no status: restricted while restricted_until lies ahead.
UPDATE agents SET status = 'active' WHERE status = 'restricted';
ALTER TABLE agents
  DROP CONSTRAINT agents_status_check,
  ADD CONSTRAINT agents_status_check CHECK (status IN ('active', 'suspended')),
  ADD COLUMN restricted_until bigint,
  ADD COLUMN suspended_at bigint,
  -- set by an operator's restore: no block or report up to here counts any more; null: all do
  ADD COLUMN counted_from bigint,
  -- raised by every judgement: one that was made on an older state is refused
  ADD COLUMN judged bigint NOT NULL DEFAULT 0;

-- Whom every node must have heard of by now.
CREATE INDEX agents_suspended ON agents (suspended_at) WHERE status = 'suspended';

-- Whether the blocked agent began the conversation of the pair. While a block stands nobody can begin one.
ALTER TABLE blocks ADD COLUMN counts boolean NOT NULL DEFAULT false;
UPDATE blocks b SET counts = true
FROM participants p JOIN conversations c ON c.id = p.conversation_id
WHERE p.agent_id = b.blocked_id AND p.counterparty_id = b.agent_id AND c.initiator_id = b.blocked_id;
CREATE INDEX blocks_counted ON blocks (blocked_id, created_at) WHERE counts;

-- A report stays when its block is lifted, and a conversation may begin after it: who began it is looked up.
ALTER TABLE reports ADD COLUMN conversation_id text COLLATE "C";
UPDATE reports r SET conversation_id = p.conversation_id
FROM participants p WHERE p.agent_id = r.reported_id AND p.counterparty_id = r.agent_id;
CREATE INDEX reports_by_target ON reports (reported_id, created_at);
CREATE INDEX reports_by_age ON reports (created_at, id);

-- Agents to be judged again: written with the block or report that is the reason, gone with the judgement that saw it.
CREATE TABLE recounts (
  no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  agent_id text COLLATE "C" NOT NULL
);

CREATE INDEX recounts_by_agent ON recounts (agent_id);

-- Suspended agents that may still be the last admin of a group; gone once they are replaced everywhere.
CREATE TABLE handovers (
  agent_id text COLLATE "C" PRIMARY KEY,
  since bigint NOT NULL
);

-- What operators did, and suspensions by enforcement; written with the change itself, never changed.
CREATE TABLE audit_log (
  no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at bigint NOT NULL,
  -- the operating system's user; null: enforcement
  operator text,
  action text NOT NULL,
  agent_id text COLLATE "C" NOT NULL,
  reason text
);

CREATE INDEX audit_log_by_agent ON audit_log (agent_id, no);
