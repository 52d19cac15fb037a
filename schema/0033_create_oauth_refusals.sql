-- Clients of the sign-in by OAuth, and hosts of redirects, that operators refuse. A refused client gets no code and no token.
CREATE TABLE oauth_refusals (
  kind text NOT NULL CHECK (kind IN ('client', 'redirect_host')),
  -- a client id; or a host, or the scheme of an application with a colon at its end
  value text COLLATE "C" NOT NULL,
  operator text NOT NULL,
  refused_at bigint NOT NULL,
  reason text,
  PRIMARY KEY (kind, value)
);
