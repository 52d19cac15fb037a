-- What requests with an Idempotency-Key answered, so that a repetition is answered alike and does nothing (wire.md C.0).
CREATE TABLE idempotency_keys (
  agent_id text COLLATE "C" NOT NULL,
  key text COLLATE "C" NOT NULL,
  -- SHA-256 of method, path and body
  fingerprint bytea NOT NULL,
  -- whose attempt it is: only that one may end it
  nonce bytea NOT NULL,
  -- when the first attempt began: further attempts keep it, and the ids that they make derive from it
  created_at bigint NOT NULL,
  -- from when on another attempt may begin, if there is no answer by then
  lapses_at bigint NOT NULL,
  -- the answer; null: an attempt is under way, or ended without one that is worth keeping
  status integer,
  headers text,
  body bytea,
  PRIMARY KEY (agent_id, key)
);

CREATE INDEX idempotency_keys_by_age ON idempotency_keys (created_at);
