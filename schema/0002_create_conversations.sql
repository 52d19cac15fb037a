-- The order of a conversation lives in its row: whoever holds the row's lock gives out the next seq.
CREATE TABLE conversations (
  id text COLLATE "C" PRIMARY KEY,
  kind text NOT NULL CHECK (kind IN ('direct', 'group')),
  -- raised by a new owner with its first accepted write: what an older owner still sends is refused
  epoch bigint NOT NULL DEFAULT 0,
  -- raised by every change of who may write or receive: a batch decided on the older state is refused
  version bigint NOT NULL DEFAULT 0,
  last_seq bigint NOT NULL DEFAULT 0,
  last_message_at bigint,
  created_at bigint NOT NULL,
  -- direct only: who wrote first, and when the other side first answered (null: cold)
  initiator_id text COLLATE "C",
  established_at bigint
);

CREATE TABLE participants (
  agent_id text COLLATE "C" NOT NULL,
  conversation_id text COLLATE "C" NOT NULL,
  -- direct only: the other side
  counterparty_id text COLLATE "C",
  -- seqs up to here are hidden from this participant (wire.md G.10)
  hidden_through bigint NOT NULL DEFAULT 0,
  PRIMARY KEY (agent_id, conversation_id)
);

CREATE INDEX participants_by_conversation ON participants (conversation_id);

-- Content and metadata are JSON texts, not jsonb: jsonb would refuse what an innocent neighbour in the batch holds.
CREATE TABLE messages (
  conversation_id text COLLATE "C" NOT NULL,
  seq bigint NOT NULL,
  id text COLLATE "C" NOT NULL,
  sender_id text COLLATE "C" NOT NULL,
  client_msg_id text COLLATE "C" NOT NULL,
  type text NOT NULL,
  content text NOT NULL,
  metadata text NOT NULL,
  created_at bigint NOT NULL,
  PRIMARY KEY (conversation_id, seq)
);

CREATE UNIQUE INDEX messages_by_id ON messages (id);

-- What makes a send happen once: a sender's own id for a message, over all conversations.
CREATE TABLE message_keys (
  sender_id text COLLATE "C" NOT NULL,
  client_msg_id text COLLATE "C" NOT NULL,
  message_id text COLLATE "C" NOT NULL,
  PRIMARY KEY (sender_id, client_msg_id)
);

-- One participant's own view: messages it chose not to see any more.
CREATE TABLE hidden_messages (
  agent_id text COLLATE "C" NOT NULL,
  conversation_id text COLLATE "C" NOT NULL,
  seq bigint NOT NULL,
  PRIMARY KEY (agent_id, conversation_id, seq)
);

-- A first message needs its initiator's slot, reserved before and claimed with the message (wire.md G.1).
CREATE TABLE cold_slots (
  conversation_id text COLLATE "C" PRIMARY KEY,
  agent_id text COLLATE "C" NOT NULL,
  reserved_at bigint NOT NULL,
  -- null: reserved, not yet used
  claimed_at bigint
);

CREATE INDEX cold_slots_by_agent ON cold_slots (agent_id);

CREATE TABLE contacts (
  agent_id text COLLATE "C" NOT NULL,
  contact_id text COLLATE "C" NOT NULL,
  notes text,
  added_at bigint NOT NULL,
  PRIMARY KEY (agent_id, contact_id)
);

CREATE INDEX contacts_by_contact ON contacts (contact_id);

CREATE TABLE blocks (
  agent_id text COLLATE "C" NOT NULL,
  blocked_id text COLLATE "C" NOT NULL,
  created_at bigint NOT NULL,
  PRIMARY KEY (agent_id, blocked_id)
);
