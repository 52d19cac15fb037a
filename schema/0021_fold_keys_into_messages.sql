-- A message is its own key: what makes a send happen once is this index, and no table besides. System messages have
-- names of their own, which no sender uses up. If messages are ever parted by time, keys are a table again: docs/decisions.md.
CREATE UNIQUE INDEX messages_once ON messages (sender_id, client_msg_id) WHERE type <> 'system';
DROP TABLE message_keys;

-- Who sent it is in the message, which whoever asks has at hand.
ALTER TABLE envelopes DROP COLUMN sender_id;

-- Room on each page for acknowledgements, which mostly come soon after the message. Counts for pages that are written from now on.
ALTER TABLE envelopes SET (fillfactor = 80);
