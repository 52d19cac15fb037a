-- Ends a lease; whether another of the agent stands. A function, so that it looks at the others after its turn has come: of
-- two sessions that end at the same instant, each would see the other's lease otherwise, and nobody would hear that none is left.
CREATE FUNCTION end_reply_lease(ender text, ended text, at bigint, OUT active boolean) LANGUAGE plpgsql AS $$
BEGIN
  -- The lock of this agent's claims (claim_replies).
  PERFORM pg_advisory_xact_lock(721753602, hashtext(ender));
  DELETE FROM reply_leases WHERE agent_id = ender AND session_id = ended;
  active := EXISTS (SELECT FROM reply_leases WHERE agent_id = ender AND session_id <> ended AND ends_at > at);
END
$$;
