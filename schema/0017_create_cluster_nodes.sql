-- What each node of a cluster last said of itself and of the others. Not logged: it is said again every second, and
-- a database that has crashed begins without it.
CREATE UNLOGGED TABLE cluster_nodes (
  -- RUNNER_HOST:RUNNER_PORT
  address text COLLATE "C" PRIMARY KEY,
  -- Of the advisory lock that the process holds for as long as it lives.
  lock_key integer NOT NULL,
  -- JSON: the addresses of the nodes that answer this one.
  reaches text NOT NULL,
  -- JSON: version of the wire, schema and settings that all nodes should have in common.
  facts text NOT NULL,
  said_at timestamptz NOT NULL
);
