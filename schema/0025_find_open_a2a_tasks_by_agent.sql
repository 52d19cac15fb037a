-- The oldest open tasks of one of the two agents of a conversation are found without the others.
CREATE INDEX a2a_tasks_answerable ON a2a_tasks (conversation_id, recipient_id, seq) WHERE open;
DROP INDEX a2a_tasks_open;
