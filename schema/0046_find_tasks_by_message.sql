-- The open task that has a message in its log is found without the others. Without fastupdate, because a look-up would
-- read the whole list of pending entries.
CREATE INDEX a2a_tasks_by_message ON a2a_tasks USING gin (jsonb_path_query_array(log::jsonb, '$[*].messageId'))
  WITH (fastupdate = off) WHERE open;
