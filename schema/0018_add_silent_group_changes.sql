-- Changes of a group that no system message tells of (an invite refused or taken back), each by the id that its request
-- has for a message. A second attempt at the request finds it done by this row, as other changes are found by their
-- messages. It means something as long as a request may be attempted again: a day.
CREATE TABLE silent_group_changes (
  id text COLLATE "C" PRIMARY KEY,
  group_id text COLLATE "C" NOT NULL,
  changed_at bigint NOT NULL
);

CREATE INDEX silent_group_changes_by_age ON silent_group_changes (changed_at);
