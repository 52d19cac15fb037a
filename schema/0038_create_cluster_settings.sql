-- What all nodes of the cluster must have in common and what the first node that starts decides.
CREATE TABLE cluster_settings (
  -- There is one row at most.
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  shards integer NOT NULL
);
-- A cluster of an earlier version has 300 shards.
INSERT INTO cluster_settings (shards) SELECT 300 WHERE to_regclass('cluster_runners') IS NOT NULL;
