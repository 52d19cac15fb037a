-- A picture that this server keeps for the group, by its content; another's is in avatar_url.
ALTER TABLE groups ADD COLUMN avatar_key text COLLATE "C";

CREATE INDEX groups_by_avatar ON groups (avatar_key) WHERE avatar_key IS NOT NULL;
