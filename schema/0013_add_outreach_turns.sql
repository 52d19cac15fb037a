-- Raised with each cold slot that is reserved: of two reservations made on the same count only one stands.
CREATE TABLE outreach_turns (
  agent_id text COLLATE "C" PRIMARY KEY,
  turn bigint NOT NULL
);
