-- Finds the messages that answer a message, for threads. Only answers have an entry, and of them only those of the form in
-- which the server stores metadata.
CREATE INDEX messages_by_answered ON messages (conversation_id, substring(metadata FROM '"reply_to":"(msg_[A-Za-z0-9_-]{1,60})"'))
  WHERE metadata LIKE '%"reply_to":"msg!_%' ESCAPE '!';
