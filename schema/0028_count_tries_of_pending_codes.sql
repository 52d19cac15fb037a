-- Tries of this pending id, right or wrong. The wrong ones of all pending ids of a code are counted in codes.attempts.
ALTER TABLE pending_codes ADD COLUMN attempts integer NOT NULL DEFAULT 0;
