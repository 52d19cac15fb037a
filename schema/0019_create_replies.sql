-- Which of an agent's processes answers a message. Past `ends_at` a row means nothing, whether or not it is still there.

-- A session says that it is working.
CREATE TABLE reply_leases (
  agent_id text COLLATE "C" NOT NULL,
  -- empty: the nameless one
  session_id text COLLATE "C" NOT NULL,
  ends_at bigint NOT NULL,
  PRIMARY KEY (agent_id, session_id)
);

CREATE INDEX reply_leases_by_end ON reply_leases (ends_at);

-- A process has the sole right to answer a message.
CREATE TABLE reply_claims (
  agent_id text COLLATE "C" NOT NULL,
  message_id text COLLATE "C" NOT NULL,
  holder text COLLATE "C" NOT NULL,
  ends_at bigint NOT NULL,
  PRIMARY KEY (agent_id, message_id)
);

CREATE INDEX reply_claims_by_end ON reply_claims (ends_at);

-- Claims the messages before the first that is not in the agent's inbox or is held by another; none while it defers.
-- A function, because each of its statements sees what was committed before the lock was granted; a single statement
-- sees what was committed before it began to wait.
CREATE FUNCTION claim_replies(
  claimer text,
  message_ids text[],
  claim_holder text,
  defer_if_active boolean,
  at bigint,
  until bigint,
  OUT claimed integer,
  OUT deferred boolean,
  -- the first message that was not claimed is not in the inbox
  OUT missing boolean,
  -- when what decided this ends: the claim, the other's claim, the last lease; null if nothing is in the way or had
  OUT ends bigint
) LANGUAGE plpgsql AS $$
DECLARE
  stop record;
BEGIN
  -- Claims of one agent are made one after the other. The first number is the class of these locks.
  PERFORM pg_advisory_xact_lock(721753602, hashtext(claimer));

  SELECT w.place, e.no IS NULL AS missing, c.ends_at INTO stop
  FROM unnest(message_ids) WITH ORDINALITY AS w (id, place)
  LEFT JOIN LATERAL (
    SELECT x.no FROM messages m
    JOIN envelopes x ON x.conversation_id = m.conversation_id AND x.recipient_id = claimer AND x.seq = m.seq
    WHERE m.id = w.id
  ) e ON true
  LEFT JOIN reply_claims c
    ON c.agent_id = claimer AND c.message_id = w.id AND c.holder <> claim_holder AND c.ends_at > at
  WHERE e.no IS NULL OR c.ends_at IS NOT NULL
  ORDER BY w.place LIMIT 1;

  missing := COALESCE(stop.missing, false);
  IF defer_if_active THEN
    SELECT max(l.ends_at) INTO ends FROM reply_leases l WHERE l.agent_id = claimer AND l.ends_at > at;
  END IF;
  deferred := ends IS NOT NULL;
  claimed := CASE WHEN deferred THEN 0 ELSE COALESCE(stop.place - 1, cardinality(message_ids)) END;
  IF claimed > 0 THEN
    INSERT INTO reply_claims (agent_id, message_id, holder, ends_at)
    SELECT DISTINCT claimer, m.id, claim_holder, until FROM unnest(message_ids[1:claimed]) AS m (id)
    ON CONFLICT (agent_id, message_id) DO UPDATE SET holder = excluded.holder, ends_at = excluded.ends_at;
    ends := until;
  ELSIF NOT deferred THEN
    ends := stop.ends_at;
  END IF;
END
$$;
