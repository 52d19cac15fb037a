-- The words of messages, for searches (wire.md S). A cache: a search and a job fill it from `messages`, and a send does not know it.
CREATE TABLE message_words (
  conversation_id text COLLATE "C" NOT NULL,
  seq bigint NOT NULL,
  created_at bigint NOT NULL,
  -- words, each with the month of the message, and tokens for those who may find it (Lexemes.ts)
  words tsvector NOT NULL,
  PRIMARY KEY (conversation_id, seq)
);

-- Without a list of pending entries, because the statement that empties a full list stops PGlite for too long.
CREATE INDEX message_words_by_word ON message_words USING gin (words) WITH (fastupdate = off);
-- Plans must not depend on which words are frequent.
ALTER TABLE message_words ALTER COLUMN words SET STATISTICS 0;

-- Which messages of a conversation have their words in `message_words`: those with from_seq < seq <= through_seq.
CREATE TABLE message_word_ranges (
  conversation_id text COLLATE "C" PRIMARY KEY,
  -- 0 once the first message was reached
  from_seq bigint NOT NULL,
  through_seq bigint NOT NULL
);

CREATE INDEX message_word_ranges_pending ON message_word_ranges (conversation_id) WHERE from_seq > 0;
