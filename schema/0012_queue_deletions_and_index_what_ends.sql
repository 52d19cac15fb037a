-- Deleted accounts of which something is left to do: written by the statement that ends the account.
ALTER TABLE departures RENAME TO deletions;
ALTER INDEX departures_pkey RENAME TO deletions_pkey;

-- When the rest is done, or done once more: before that somebody is at it, or has just been.
ALTER TABLE deletions ADD COLUMN due_at bigint NOT NULL DEFAULT 0;
ALTER TABLE deletions ALTER COLUMN due_at DROP DEFAULT;
CREATE INDEX deletions_due ON deletions (due_at);

-- Steps of earlier deletions may have failed, and nothing remembered them.
INSERT INTO deletions (agent_id, since, due_at)
SELECT id, deleted_at, deleted_at FROM agents WHERE deleted_at IS NOT NULL
ON CONFLICT DO NOTHING;

-- When the oldest message that is left was sent, or was at least not sent before; null: since the conversation began.
-- Written by the removal of old messages alone, so a send touches no index of it.
ALTER TABLE conversations ADD COLUMN oldest_at bigint;
CREATE INDEX conversations_by_oldest ON conversations ((COALESCE(oldest_at, created_at)));

-- From here on `used_at` is the latest use of a file, a day too early at most: what no message can refer to any more may go.
CREATE INDEX attachments_by_use ON attachments (used_at) WHERE used_at IS NOT NULL;
UPDATE attachments a SET used_at = GREATEST(a.used_at, m.at)
FROM (
  SELECT found[1] AS id, max(created_at) AS at
  FROM messages, regexp_matches(content, '"attachment_id":"(att_[A-Za-z0-9_-]+)"', 'g') AS found
  WHERE content LIKE '%"attachment_id":"att\_%'
  GROUP BY found[1]
) m
WHERE a.id = m.id AND a.used_at IS NOT NULL;

-- A refusal means something for a day.
CREATE INDEX group_refusals_by_age ON group_refusals (refused_at);
