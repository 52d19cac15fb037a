-- Files of agents: announced here, their bytes elsewhere.
CREATE TABLE attachments (
  id text COLLATE "C" PRIMARY KEY,
  uploader_id text COLLATE "C" NOT NULL,
  -- for whom: one agent, or the members of one group
  recipient_id text COLLATE "C",
  group_id text COLLATE "C",
  filename text NOT NULL,
  content_type text NOT NULL,
  size bigint NOT NULL,
  -- of the bytes, as 64 hexadecimal digits
  sha256 text NOT NULL,
  created_at bigint NOT NULL,
  -- null: the bytes have not been seen yet
  stored_at bigint,
  -- when a message first referred to it; null: it may be swept
  used_at bigint,
  -- about to be removed: nobody finds it any more
  condemned boolean NOT NULL DEFAULT false,
  -- when the sweep looks at it next; null: never again
  look_at bigint,
  CHECK ((recipient_id IS NULL) <> (group_id IS NULL))
);

CREATE INDEX attachments_to_look_at ON attachments (look_at) WHERE look_at IS NOT NULL;

-- The sum of the sizes of an agent's attachments; its row's lock makes the quota exact.
CREATE TABLE attachment_usage (
  agent_id text COLLATE "C" PRIMARY KEY,
  bytes bigint NOT NULL
);

-- The pictures in the file store, by their content; whose they are is told by who refers to them.
CREATE TABLE avatars (
  key text COLLATE "C" PRIMARY KEY,
  look_at bigint NOT NULL,
  condemned boolean NOT NULL DEFAULT false
);

CREATE INDEX avatars_to_look_at ON avatars (look_at);
CREATE INDEX agents_by_avatar ON agents (avatar_key) WHERE avatar_key IS NOT NULL;
