-- What agents say that they can do (wire.md C.3).

CREATE TABLE agent_skills (
  agent_id text COLLATE "C" PRIMARY KEY,
  -- a JSON array
  skills text NOT NULL
);

-- The distinct tags of an agent's skills. A handle never changes, and is here so that the directory finds the
-- agents of a tag in the order of their handles.
CREATE TABLE agent_tags (
  tag text COLLATE "C" NOT NULL,
  handle text COLLATE "C" NOT NULL,
  agent_id text COLLATE "C" NOT NULL,
  PRIMARY KEY (tag, handle)
);

CREATE INDEX agent_tags_of_agent ON agent_tags (agent_id, tag);
