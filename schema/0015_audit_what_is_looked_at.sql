-- Operators' looks are noted too, and not each is at one agent.
ALTER TABLE audit_log ALTER COLUMN agent_id DROP NOT NULL;
