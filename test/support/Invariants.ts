/**
 * A query for all rows that break an invariant: the seqs of each conversation, the numbers and counters of each inbox,
 * keys and their messages, members and their counts, cold slots and their conversations. A sound database gives no
 * rows. The query is not valid for a database from which old messages were removed.
 */
export const UNSOUND = `
SELECT 'seq' AS what, c.id FROM conversations c
LEFT JOIN (SELECT conversation_id, count(*) AS n, max(seq) AS top, min(seq) AS low FROM messages GROUP BY 1) m
  ON m.conversation_id = c.id
WHERE COALESCE(m.n, 0) <> c.last_seq OR m.top <> m.n OR m.low <> 1
UNION ALL
SELECT 'inbox', i.agent_id FROM inboxes i
LEFT JOIN (
  SELECT recipient_id, count(*) AS n, max(no) AS top, min(no) AS low, count(*) FILTER (WHERE delivered_at IS NULL) AS waiting
  FROM envelopes GROUP BY 1
) e ON e.recipient_id = i.agent_id
WHERE COALESCE(e.n, 0) <> i.last_no OR e.top <> e.n OR e.low <> 1 OR COALESCE(e.waiting, 0) <> i.undelivered
UNION ALL
SELECT 'order', a.recipient_id FROM (
  SELECT recipient_id, seq, lag(seq) OVER (PARTITION BY recipient_id, conversation_id ORDER BY no) AS before FROM envelopes
) a WHERE a.seq <= a.before
UNION ALL
SELECT 'key', min(m.id) FROM messages m WHERE m.type <> 'system'
GROUP BY m.sender_id, m.client_msg_id HAVING count(*) > 1
UNION ALL
SELECT 'envelope', m.id FROM messages m JOIN conversations c ON c.id = m.conversation_id
WHERE c.kind = 'direct'
  AND (SELECT count(*) FROM envelopes e WHERE e.conversation_id = m.conversation_id AND e.seq = m.seq) <> 1
UNION ALL
SELECT 'members', g.id FROM groups g
WHERE g.member_count <> (SELECT count(*) FROM group_members m WHERE m.group_id = g.id AND m.left_at IS NULL)
  OR g.member_count <> (SELECT count(*) FROM participants p WHERE p.conversation_id = g.id)
UNION ALL
SELECT 'slot', COALESCE(c.id, s.conversation_id) FROM cold_slots s
FULL JOIN (SELECT * FROM conversations WHERE initiator_id IS NOT NULL AND established_at IS NULL) c ON c.id = s.conversation_id
WHERE s.agent_id IS DISTINCT FROM c.initiator_id OR s.claimed_at IS DISTINCT FROM c.created_at`

/**
 * A trigger that records a violation at the very end of a transaction that stores a message, if a committed block
 * between the two agents exists by then: the message would be committed after the block.
 */
export const WITNESS = `
CREATE TABLE violations (message_id text NOT NULL);
CREATE FUNCTION witness() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO violations
  SELECT NEW.id FROM participants p
  JOIN blocks b ON (b.agent_id = p.agent_id AND b.blocked_id = p.counterparty_id)
    OR (b.agent_id = p.counterparty_id AND b.blocked_id = p.agent_id)
  WHERE p.conversation_id = NEW.conversation_id AND p.agent_id = NEW.sender_id;
  RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER witness AFTER INSERT ON messages
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION witness()`
