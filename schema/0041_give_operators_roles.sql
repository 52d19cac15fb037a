-- What the holder of a link, session or token may do. `token_hash` of a role below operator is made of the role and the
-- token, so that a server that does not know roles finds no such link or token.
ALTER TABLE console_access ADD COLUMN role text NOT NULL DEFAULT 'operator'
  CHECK (role IN ('viewer', 'moderator', 'operator'));
