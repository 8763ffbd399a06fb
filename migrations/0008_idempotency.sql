-- Answers to requests that carried an Idempotency-Key, for 24 hours: who repeats a request gets the
-- first answer again, and the request is not done twice.

CREATE TABLE postrider.idempotency_keys (
    -- Whose key it is: a customer's id, or the id of an operator's API key.
    owner         text NOT NULL CHECK (octet_length(owner) BETWEEN 1 AND 36),
    route         text NOT NULL CHECK (octet_length(route) BETWEEN 1 AND 100),
    key_sha256    bytea NOT NULL CHECK (octet_length(key_sha256) = 32),
    -- Whom the answer tells of; it is erased with that customer.
    customer_id   uuid,
    -- The answer with the request's hash, sealed with the master key and bound to this row. NULL:
    -- the request has begun, and what it does is not done by Postgres.
    answer_sealed bytea CHECK (octet_length(answer_sealed) <= 16777216),
    created_at    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (owner, route, key_sha256)
);
CREATE INDEX idempotency_keys_by_time ON postrider.idempotency_keys (created_at);
CREATE INDEX idempotency_keys_by_customer ON postrider.idempotency_keys (customer_id)
    WHERE customer_id IS NOT NULL;
ALTER TABLE postrider.idempotency_keys ENABLE ROW LEVEL SECURITY;
ALTER TABLE postrider.idempotency_keys FORCE ROW LEVEL SECURITY;

-- As before, but with a customer who is deleted the stored answers that tell of it go, too.
CREATE OR REPLACE FUNCTION postrider.erase_some(rows_max integer) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    -- What is null in a wish drops out of its conditions, so that indexes are used.
    SET plan_cache_mode = force_custom_plan
    AS $$
DECLARE
  e postrider.erasures;
  last uuid;
  gone_attempts bigint;
  gone_letters bigint := 0;
  gone_status bigint := 0;
  gone_answers bigint := 0;
BEGIN
  SELECT * INTO e FROM postrider.erasures
  WHERE deleted_at IS NULL
    AND CASE WHEN created_at < now() - interval '15 days' THEN true
             WHEN state = 'erasing' THEN true
             ELSE checked_at < now() - interval '10 minutes'
                  AND created_at > now() - interval '1 day' END
  ORDER BY checked_at LIMIT 1 FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    RETURN -1;
  END IF;
  -- A letter's id begins with the ms of its dispatch.
  last := (lpad(to_hex(postrider.millis(e.created_at)), 12, '0') || repeat('f', 20))::uuid;
  -- Attempts name messages and tenants, not events: those of an event are found by its letters.
  DELETE FROM postrider.attempts a USING (
    SELECT b.day, b.id FROM postrider.attempts b
    WHERE (e.customer_id IS NULL OR b.customer_id = e.customer_id)
      AND (e.tenant IS NULL OR b.tenants @> ARRAY[e.tenant])
      AND (e.event_id IS NULL OR b.message_id IN (
            SELECT l.message_id FROM postrider.dead_letters l
            WHERE l.event_id = e.event_id AND l.id <= last))
      AND b.started_at <= e.created_at + interval '10 seconds'
    LIMIT rows_max) d
  WHERE a.day = d.day AND a.id = d.id;
  GET DIAGNOSTICS gone_attempts = ROW_COUNT;
  IF gone_attempts < rows_max THEN
    DELETE FROM postrider.dead_letters a USING (
      SELECT l.day, l.id FROM postrider.dead_letters l
      WHERE (e.customer_id IS NULL OR l.customer_id = e.customer_id)
        AND (e.tenant IS NULL OR l.tenant = e.tenant)
        AND (e.event_id IS NULL OR l.event_id = e.event_id)
        AND l.id <= last
      LIMIT rows_max) d
    WHERE a.day = d.day AND a.id = d.id;
    GET DIAGNOSTICS gone_letters = ROW_COUNT;
    -- A status tells of an endpoint: it goes with its customer, as stored answers do.
    IF e.of_deleted THEN
      DELETE FROM postrider.endpoint_status s WHERE s.customer_id = e.customer_id;
      GET DIAGNOSTICS gone_status = ROW_COUNT;
      DELETE FROM postrider.idempotency_keys WHERE (owner, route, key_sha256) IN (
        SELECT k.owner, k.route, k.key_sha256 FROM postrider.idempotency_keys k
        WHERE k.customer_id = e.customer_id LIMIT rows_max);
      GET DIAGNOSTICS gone_answers = ROW_COUNT;
      gone_status := gone_status + gone_answers;
    END IF;
  END IF;
  UPDATE postrider.erasures SET
    checked_at = now(),
    letters = letters + gone_letters,
    attempts = attempts + gone_attempts,
    state = CASE WHEN gone_letters + gone_attempts + gone_status = 0
                      AND e.created_at < now() - interval '10 seconds'
                 THEN 'erased' ELSE state END,
    erased_at = CASE WHEN erased_at IS NULL AND gone_letters + gone_attempts + gone_status = 0
                          AND e.created_at < now() - interval '10 seconds'
                     THEN now() ELSE erased_at END,
    deleted_at = CASE WHEN e.created_at < now() - interval '15 days' THEN now() END
  WHERE id = e.id;
  RETURN gone_letters + gone_attempts + gone_status;
END $$;

-- As before, but stored answers go, too, when they are a day old.
CREATE OR REPLACE FUNCTION postrider.purge_some(rows_max integer) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
  before timestamptz := now() - interval '30 days';
  n bigint;
  gone bigint := 0;
BEGIN
  DELETE FROM postrider.subscriptions WHERE id IN (
    SELECT id FROM postrider.subscriptions WHERE deleted_at < before LIMIT rows_max);
  GET DIAGNOSTICS gone = ROW_COUNT;
  DELETE FROM postrider.endpoints WHERE id IN (
    SELECT e.id FROM postrider.endpoints e WHERE e.deleted_at < before AND NOT EXISTS (
      SELECT 1 FROM postrider.subscriptions s WHERE s.endpoint_id = e.id)
    LIMIT rows_max);
  GET DIAGNOSTICS n = ROW_COUNT;
  gone := gone + n;
  DELETE FROM postrider.grants WHERE (customer_id, tenant) IN (
    SELECT customer_id, tenant FROM postrider.grants WHERE deleted_at < before LIMIT rows_max);
  GET DIAGNOSTICS n = ROW_COUNT;
  gone := gone + n;
  DELETE FROM postrider.event_types WHERE deleted_at < before;
  GET DIAGNOSTICS n = ROW_COUNT;
  gone := gone + n;
  DELETE FROM postrider.api_keys WHERE key_id IN (
    SELECT key_id FROM postrider.api_keys WHERE revoked_at < before LIMIT rows_max);
  GET DIAGNOSTICS n = ROW_COUNT;
  gone := gone + n;
  DELETE FROM postrider.erasures WHERE deleted_at < before;
  GET DIAGNOSTICS n = ROW_COUNT;
  gone := gone + n;
  DELETE FROM postrider.idempotency_keys WHERE (owner, route, key_sha256) IN (
    SELECT owner, route, key_sha256 FROM postrider.idempotency_keys
    WHERE created_at <= now() - interval '24 hours' LIMIT rows_max)
    -- A row that a request takes over meanwhile is looked at again.
    AND created_at <= now() - interval '24 hours';
  GET DIAGNOSTICS n = ROW_COUNT;
  gone := gone + n;
  DELETE FROM postrider.customers WHERE id IN (
    SELECT c.id FROM postrider.customers c WHERE c.deleted_at < before
      AND NOT EXISTS (SELECT 1 FROM postrider.grants g WHERE g.customer_id = c.id)
      AND NOT EXISTS (SELECT 1 FROM postrider.endpoints e WHERE e.customer_id = c.id)
      AND NOT EXISTS (SELECT 1 FROM postrider.subscriptions s WHERE s.customer_id = c.id)
      AND NOT EXISTS (SELECT 1 FROM postrider.api_keys k WHERE k.customer_id = c.id)
    LIMIT rows_max);
  GET DIAGNOSTICS n = ROW_COUNT;
  RETURN gone + n;
END $$;
