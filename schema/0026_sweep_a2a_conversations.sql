-- When somebody was last about to make a task there: rows of conversations in which none was made are removed.
ALTER TABLE a2a_conversations ADD COLUMN begun_at bigint NOT NULL DEFAULT (extract(epoch FROM now()) * 1000)::bigint;
ALTER TABLE a2a_conversations ALTER COLUMN begun_at DROP DEFAULT;
