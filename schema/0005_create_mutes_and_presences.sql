-- What an agent does not want pushed. Past `muted_until` a row means nothing, whether or not it is still there.
CREATE TABLE mutes (
  muter_id text COLLATE "C" NOT NULL,
  kind text COLLATE "C" NOT NULL CHECK (kind IN ('agent', 'conversation')),
  target_id text COLLATE "C" NOT NULL,
  -- null: until it is lifted
  muted_until bigint,
  created_at bigint NOT NULL,
  PRIMARY KEY (muter_id, kind, target_id)
);

CREATE INDEX mutes_by_target ON mutes (target_id);
CREATE INDEX mutes_by_expiry ON mutes (muted_until) WHERE muted_until IS NOT NULL;

-- What outlives an agent's sockets and the process; whether it is online does not.
CREATE TABLE presences (
  agent_id text COLLATE "C" PRIMARY KEY,
  custom_message text,
  last_seen bigint
);

-- Who holds an agent as a contact is read in slices, each beginning where the one before ended.
CREATE INDEX contacts_by_holder ON contacts (contact_id, agent_id);
DROP INDEX contacts_by_contact;
