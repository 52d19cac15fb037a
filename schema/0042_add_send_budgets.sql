-- How many messages an agent may send within 24 hours, to one conversation and in all, by its own choice. NULL: as the
-- server says.
ALTER TABLE agents
  ADD COLUMN conversation_budget integer CHECK (conversation_budget > 0),
  ADD COLUMN day_budget integer CHECK (day_budget > 0);
