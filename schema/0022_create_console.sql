-- Who may use the operators' API (wire.md O): one-time links, the sessions that come of them, tokens of programs.
CREATE TABLE console_access (
  id text COLLATE "C" PRIMARY KEY,
  kind text NOT NULL CHECK (kind IN ('link', 'session', 'token')),
  -- SHA-256
  token_hash bytea NOT NULL UNIQUE,
  -- who made the link or the token
  operator text NOT NULL,
  -- of a program's token: what it is for
  name text,
  created_at bigint NOT NULL,
  -- to the minute
  last_used_at bigint,
  expires_at bigint NOT NULL,
  -- a link: used; a session or token: revoked
  ended_at bigint
);

CREATE INDEX console_access_by_expiry ON console_access (expires_at);

-- Limits that operators have changed; the configuration's hold for all others.
CREATE TABLE limit_changes (
  name text COLLATE "C" NOT NULL,
  -- empty: for all
  agent_id text COLLATE "C" NOT NULL,
  value bigint NOT NULL,
  -- null: until it is taken back
  until bigint,
  operator text NOT NULL,
  changed_at bigint NOT NULL,
  reason text,
  PRIMARY KEY (name, agent_id)
);

-- What an operator decided about a report; one that is dismissed does not count. Null: not decided.
ALTER TABLE reports
  ADD COLUMN decision text CHECK (decision IN ('upheld', 'dismissed')),
  ADD COLUMN decided_at bigint,
  ADD COLUMN decided_by text,
  ADD COLUMN note text;

CREATE INDEX reports_undecided ON reports (created_at, id) WHERE decision IS NULL;
