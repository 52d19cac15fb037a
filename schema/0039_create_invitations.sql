-- Invitations that operators make: each admits as many registrations as it has uses, until it ends.
CREATE TABLE invitations (
  id text COLLATE "C" PRIMARY KEY,
  -- SHA-256 of the code in its link. The code itself is not stored.
  code_hash bytea NOT NULL UNIQUE,
  -- The only address that it admits; null if it admits whoever has the code.
  email text COLLATE "C",
  note text,
  uses integer NOT NULL CHECK (uses BETWEEN 1 AND 1000),
  used integer NOT NULL DEFAULT 0 CHECK (used BETWEEN 0 AND uses),
  created_at bigint NOT NULL,
  expires_at bigint NOT NULL
);
CREATE INDEX ON invitations (expires_at);
CREATE INDEX ON invitations (email) WHERE email IS NOT NULL;
-- The invitation that admitted a registration, which uses it up when the agent is created.
ALTER TABLE codes ADD COLUMN invitation_id text COLLATE "C";
