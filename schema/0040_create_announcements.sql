-- What operators announce to all agents. A job tells the agents in the order of their ids.
CREATE TABLE announcements (
  id text COLLATE "C" PRIMARY KEY,
  text text NOT NULL,
  created_at bigint NOT NULL,
  -- every agent with an id up to this one is told, or was deleted or registered later
  through text COLLATE "C" NOT NULL DEFAULT '',
  told bigint NOT NULL DEFAULT 0,
  -- null until all agents are told
  finished_at bigint
);
CREATE INDEX ON announcements (created_at, id) WHERE finished_at IS NULL;
-- When an operator hid the file from all agents; condemned, it is deleted when the sweep looks at it.
ALTER TABLE attachments ADD COLUMN quarantined_at bigint;
