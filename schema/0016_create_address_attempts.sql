-- How often an IP address asked for, or tried, one-time codes lately (wire.md G.15): a true sliding window, a row for each address.
CREATE TABLE address_attempts (
  route text COLLATE "C" NOT NULL,
  -- with IPv6 the network of one subscriber
  address text COLLATE "C" NOT NULL,
  -- when each attempt that counts was made, oldest first; no more of them than the limit
  attempted_at bigint[] NOT NULL,
  -- whether the latest attempt was one too many, and does not count
  refused boolean NOT NULL,
  -- when the last one leaves the window: the row says nothing any more
  over_at bigint NOT NULL,
  PRIMARY KEY (route, address)
);

CREATE INDEX address_attempts_by_end ON address_attempts (over_at);
