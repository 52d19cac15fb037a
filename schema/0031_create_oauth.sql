-- Sign in by OAuth (wire.md P). A past `expires_at` means that a row has no effect, whether or not it is still there.

-- Requests for authorization that a person has not answered yet.
CREATE TABLE oauth_requests (
  id text COLLATE "C" PRIMARY KEY,
  -- SHA-256 of the cookie that binds the request to one browser
  cookie_hash bytea NOT NULL,
  client_id text COLLATE "C" NOT NULL,
  client_name text,
  -- the host of the client's own document; null for a registered client
  client_host text,
  redirect_uri text COLLATE "C" NOT NULL,
  challenge text COLLATE "C" NOT NULL,
  state text,
  scopes text NOT NULL,
  -- who has signed in on the page; null until somebody has
  agent_id text COLLATE "C",
  expires_at bigint NOT NULL
);

CREATE INDEX oauth_requests_by_end ON oauth_requests (expires_at);

-- What a person has permitted a host to do for an agent. It ends with the key that the agent had at that time.
CREATE TABLE oauth_connections (
  id text COLLATE "C" PRIMARY KEY,
  agent_id text COLLATE "C" NOT NULL,
  key_hash bytea NOT NULL,
  client_id text COLLATE "C" NOT NULL,
  client_name text,
  client_host text,
  redirect_uri text COLLATE "C" NOT NULL,
  scopes text NOT NULL,
  created_at bigint NOT NULL,
  used_at bigint NOT NULL,
  -- when the last of its tokens expires
  expires_at bigint NOT NULL
);

CREATE INDEX oauth_connections_of_agent ON oauth_connections (agent_id, used_at);
CREATE INDEX oauth_connections_by_end ON oauth_connections (expires_at);

-- SHA-256 of the codes and tokens of a connection, each derived from the one before it.
CREATE TABLE oauth_tokens (
  hash bytea PRIMARY KEY,
  connection_id text COLLATE "C" NOT NULL,
  kind text NOT NULL CHECK (kind IN ('code', 'refresh', 'access')),
  -- the code or refresh token that gave this one; null for a code
  parent bytea,
  -- of a code only: the challenge that its verifier must fit
  challenge text COLLATE "C",
  expires_at bigint NOT NULL,
  -- whether a code or refresh token has given its pair
  exchanged boolean NOT NULL DEFAULT false,
  -- when the token was first used; null if it was not
  used_at bigint
);

CREATE INDEX oauth_tokens_of_connection ON oauth_tokens (connection_id);
CREATE INDEX oauth_tokens_by_end ON oauth_tokens (expires_at);

-- Documents in which clients describe themselves, as their hosts sent them.
CREATE TABLE oauth_documents (
  client_id text COLLATE "C" PRIMARY KEY,
  body text NOT NULL,
  expires_at bigint NOT NULL
);

CREATE INDEX oauth_documents_by_end ON oauth_documents (expires_at);
