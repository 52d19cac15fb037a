-- Every time is an integer of milliseconds since 1970 (UTC), passed in: no statement reads the database's clock.
-- Texts compare by code unit (COLLATE "C"), in PostgreSQL and in PGlite alike.

CREATE TABLE agents (
  id text COLLATE "C" PRIMARY KEY,
  -- never reused, so never removed
  handle text COLLATE "C" NOT NULL UNIQUE,
  email text COLLATE "C" NOT NULL,
  -- which of its address's accounts this is, from 1: being unique makes the lifetime limit exact
  email_no integer NOT NULL DEFAULT 1,
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
CREATE UNIQUE INDEX agents_by_email ON agents (email, email_no);

-- Codes that were mailed, or pretended to be. One without a hash is a decoy: nothing matches it.
CREATE TABLE codes (
  id text COLLATE "C" PRIMARY KEY,
  purpose text NOT NULL CHECK (purpose IN ('register', 'recover', 'rotate')),
  email text COLLATE "C" NOT NULL,
  -- whose key it replaces; null for a registration and for a decoy
  agent_id text COLLATE "C",
  -- registration only: what the account will be
  handle text COLLATE "C",
  display_name text,
  description text,
  -- SHA-256 of the id and the code's own SHA-256
  code_hash bytea,
  -- wrong tries, over all the pending ids that stand for it
  attempts integer NOT NULL DEFAULT 0,
  expires_at bigint NOT NULL,
  -- used, exhausted or never mailed: nothing more happens to it
  closed_at bigint
);

CREATE INDEX codes_by_expiry ON codes (expires_at);

-- What a caller was given to answer a code with. Asking again while a code is young gives another id for the same code.
CREATE TABLE pending_codes (
  id text COLLATE "C" PRIMARY KEY,
  code_id text COLLATE "C" NOT NULL,
  created_at bigint NOT NULL
);

CREATE INDEX pending_codes_by_age ON pending_codes (created_at);

-- One row for each address and purpose that ever asked lately: its lock makes cooldown and hourly cap exact.
CREATE TABLE code_addresses (
  email text COLLATE "C" NOT NULL,
  purpose text NOT NULL,
  -- the latest code
  code_id text COLLATE "C" NOT NULL,
  -- when it was mailed, and when the others of the last hour were, oldest first
  last_sent_at bigint NOT NULL,
  sent_at bigint[] NOT NULL,
  -- a used code ends the cooldown it began
  cleared boolean NOT NULL DEFAULT false,
  PRIMARY KEY (email, purpose)
);

CREATE INDEX code_addresses_by_age ON code_addresses (last_sent_at);

-- Secrets that every node shares, made by the first one.
CREATE TABLE secrets (
  name text COLLATE "C" PRIMARY KEY,
  value bytea NOT NULL
);
