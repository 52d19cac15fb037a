-- Of the request that caused the event, posted with it: x-request-id. Null for what no one request caused.
ALTER TABLE webhook_deliveries ADD COLUMN request_id text;

CREATE OR REPLACE VIEW dead_webhook_deliveries AS
SELECT
  d.no, d.webhook_id, w.agent_id, a.handle, w.url, w.active, d.event, d.attempts, d.failure,
  to_timestamp(d.created_at / 1000.0) AS created_at,
  to_timestamp(d.finished_at / 1000.0) AS dead_at,
  d.request_id
FROM webhook_deliveries d
JOIN webhooks w ON w.id = d.webhook_id
JOIN agents a ON a.id = w.agent_id
WHERE d.delivered = false
ORDER BY d.finished_at DESC, d.no DESC;
