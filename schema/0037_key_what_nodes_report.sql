-- Keys of what a node reports. A reader sends the keys that it knows, and gets only the texts that are new to it.
ALTER TABLE cluster_nodes
  ADD COLUMN reaches_key text COLLATE "C" GENERATED ALWAYS AS (left(md5(reaches), 16)) STORED,
  ADD COLUMN facts_key text COLLATE "C" GENERATED ALWAYS AS (left(md5(facts), 16)) STORED;
