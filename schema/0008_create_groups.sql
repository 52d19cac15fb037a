-- A group is a conversation: its order is the row in conversations, its active members
-- are the rows in participants, whose hidden_through is where their history begins.
CREATE TABLE groups (
  id text COLLATE "C" PRIMARY KEY,
  name text NOT NULL,
  description text,
  avatar_url text,
  creator_id text COLLATE "C" NOT NULL,
  -- active members; 0 once it is deleted
  member_count integer NOT NULL,
  created_at bigint NOT NULL,
  deleted_at bigint,
  deleted_by text COLLATE "C"
);

-- Everybody who ever was a member: who left still learns that the group was deleted.
CREATE TABLE group_members (
  group_id text COLLATE "C" NOT NULL,
  agent_id text COLLATE "C" NOT NULL,
  role text NOT NULL CHECK (role IN ('admin', 'member')),
  joined_at bigint NOT NULL,
  -- the seq of the message that says so, 0 for the creator: the order of joining
  joined_seq bigint NOT NULL,
  left_at bigint,
  PRIMARY KEY (group_id, agent_id)
);

CREATE INDEX group_members_in_order ON group_members (group_id, joined_seq) WHERE left_at IS NULL;
CREATE INDEX group_members_by_agent ON group_members (agent_id) WHERE left_at IS NULL;

-- Invites that wait for an answer; an answered one is gone.
CREATE TABLE group_invites (
  id text COLLATE "C" PRIMARY KEY,
  group_id text COLLATE "C" NOT NULL,
  invitee_id text COLLATE "C" NOT NULL,
  inviter_id text COLLATE "C" NOT NULL,
  created_at bigint NOT NULL
);

CREATE UNIQUE INDEX group_invites_once ON group_invites (group_id, invitee_id);
CREATE INDEX group_invites_by_invitee ON group_invites (invitee_id, created_at, id);
CREATE INDEX group_invites_by_inviter ON group_invites (inviter_id);

-- Who said no, and when: the group leaves it alone for a while.
CREATE TABLE group_refusals (
  group_id text COLLATE "C" NOT NULL,
  agent_id text COLLATE "C" NOT NULL,
  refused_at bigint NOT NULL,
  PRIMARY KEY (group_id, agent_id)
);

-- When an inviter's latest invites were made: the lock of its row makes the budget exact.
CREATE TABLE invite_budgets (
  agent_id text COLLATE "C" PRIMARY KEY,
  spent bigint[] NOT NULL
);

-- Deleted accounts that may still be members or hold invites; gone once they are out of every group.
CREATE TABLE departures (
  agent_id text COLLATE "C" PRIMARY KEY,
  since bigint NOT NULL
);
