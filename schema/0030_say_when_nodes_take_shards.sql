-- Since when a node has written its row without a gap of two seconds; whether it takes shards, and when it said so.
ALTER TABLE cluster_nodes
  ADD COLUMN steady_since timestamptz NOT NULL DEFAULT now(),
  ADD COLUMN owns boolean NOT NULL DEFAULT false,
  ADD COLUMN turned_at timestamptz NOT NULL DEFAULT now();
