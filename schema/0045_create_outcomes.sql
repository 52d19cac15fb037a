-- What a recipient says that it does about a message (wire.md C.6). Sends do not know this table.
CREATE TABLE outcomes (
  conversation_id text COLLATE "C" NOT NULL,
  seq bigint NOT NULL,
  recipient_id text COLLATE "C" NOT NULL,
  -- 'done' and 'refused' are final
  state text NOT NULL CHECK (state IN ('working', 'done', 'refused')),
  reason text,
  at bigint NOT NULL,
  PRIMARY KEY (conversation_id, seq, recipient_id)
);

-- For the export and the erasure of an agent.
CREATE INDEX outcomes_by_recipient ON outcomes (recipient_id, conversation_id, seq);
