-- Every time is an integer of milliseconds since 1970 (UTC), passed in: no statement reads the database's clock.
-- Texts compare by code unit (COLLATE "C"), in PostgreSQL and in PGlite alike.

CREATE TABLE agents (
  id text COLLATE "C" PRIMARY KEY,
  -- never reused, so never removed
  handle text COLLATE "C" NOT NULL UNIQUE,
  email text COLLATE "C" NOT NULL,
  -- null: the handle
  display_name text,
  description text,
  avatar_key text,
  status text NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'restricted', 'suspended')),
  inbox_mode text NOT NULL DEFAULT 'open' CHECK (inbox_mode IN ('open', 'contacts_only')),
  group_invite_policy text NOT NULL DEFAULT 'open' CHECK (group_invite_policy IN ('open', 'contacts_only')),
  -- SHA-256 of the one live key; null once the account is deleted
  key_hash bytea UNIQUE,
  created_at bigint NOT NULL,
  updated_at bigint NOT NULL,
  deleted_at bigint
);

-- One live account for each e-mail address; all of them, deleted ones included, count for its lifetime.
CREATE UNIQUE INDEX agents_live_email ON agents (email) WHERE deleted_at IS NULL;
CREATE INDEX agents_email ON agents (email);

-- Codes that were mailed, or pretended to be. A row without a code is a decoy: nothing matches it.
CREATE TABLE pending_codes (
  id text COLLATE "C" PRIMARY KEY,
  purpose text NOT NULL CHECK (purpose IN ('register', 'recover', 'rotate')),
  email text COLLATE "C" NOT NULL,
  agent_id text COLLATE "C",
  handle text COLLATE "C",
  display_name text,
  description text,
  code_hash bytea,
  attempts integer NOT NULL DEFAULT 0,
  created_at bigint NOT NULL,
  expires_at bigint NOT NULL,
  -- used or exhausted: nothing more happens to it
  closed_at bigint
);

CREATE INDEX pending_codes_by_address ON pending_codes (email, purpose, created_at);
CREATE INDEX pending_codes_by_expiry ON pending_codes (expires_at);

-- One row for each mail that left, for the cooldown and the hourly cap of an address and purpose.
CREATE TABLE code_sends (
  email text COLLATE "C" NOT NULL,
  purpose text NOT NULL,
  sent_at bigint NOT NULL,
  -- a used code clears the cooldown it began
  cleared boolean NOT NULL DEFAULT false
);

CREATE INDEX code_sends_by_address ON code_sends (email, purpose, sent_at);

-- Secrets that every node shares, made by the first one.
CREATE TABLE secrets (
  name text COLLATE "C" PRIMARY KEY,
  value bytea NOT NULL
);
