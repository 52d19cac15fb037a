-- What agents put beside messages. A row goes with its message.
CREATE TABLE reactions (
  conversation_id text COLLATE "C" NOT NULL,
  seq bigint NOT NULL,
  agent_id text COLLATE "C" NOT NULL,
  emoji text COLLATE "C" NOT NULL,
  created_at bigint NOT NULL,
  PRIMARY KEY (conversation_id, seq, emoji, agent_id)
);

CREATE INDEX reactions_of_agent ON reactions (agent_id, conversation_id, seq, emoji);
