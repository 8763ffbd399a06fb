-- What is to be forgotten: all messages of a customer, a tenant or an event that were dispatched until
-- the request. Workers read these rows in their snapshot and discard what waits; the indexer deletes
-- letters, attempts and status. deleted_at: nothing can be left, workers need not look any more.

CREATE TABLE postrider.erasures (
    id          uuid PRIMARY KEY,
    customer_id uuid REFERENCES postrider.customers ON DELETE CASCADE,
    -- All that is left of a customer who is deleted.
    of_deleted  boolean NOT NULL DEFAULT false,
    tenant      text CHECK (octet_length(tenant) BETWEEN 1 AND 200),
    event_id    bytea CHECK (octet_length(event_id) BETWEEN 1 AND 1024),
    state       text NOT NULL DEFAULT 'erasing' CHECK (state IN ('erasing', 'erased')),
    letters     bigint NOT NULL DEFAULT 0,
    attempts    bigint NOT NULL DEFAULT 0,
    checked_at  timestamptz NOT NULL DEFAULT 'epoch',
    erased_at   timestamptz,
    generation  bigint NOT NULL DEFAULT 1,
    changed_xid xid8 NOT NULL,
    deleted_at  timestamptz,
    created_at  timestamptz NOT NULL DEFAULT now(),
    updated_at  timestamptz NOT NULL DEFAULT now(),
    CHECK (num_nonnulls(customer_id, tenant, event_id) >= 1)
);
CREATE INDEX erasures_changed ON postrider.erasures (changed_xid);
CREATE INDEX erasures_live ON postrider.erasures (checked_at) WHERE deleted_at IS NULL;
CREATE TRIGGER stamp_change BEFORE INSERT OR UPDATE ON postrider.erasures
    FOR EACH ROW EXECUTE FUNCTION postrider.stamp_change();
CREATE TRIGGER notify_change AFTER INSERT OR UPDATE OR DELETE ON postrider.erasures
    FOR EACH STATEMENT EXECUTE FUNCTION postrider.notify_change();
ALTER TABLE postrider.erasures ENABLE ROW LEVEL SECURITY;
ALTER TABLE postrider.erasures FORCE ROW LEVEL SECURITY;

CREATE INDEX dead_letters_by_tenant ON postrider.dead_letters (tenant, id);
CREATE INDEX dead_letters_by_event ON postrider.dead_letters USING hash (event_id);
CREATE INDEX attempts_by_tenant ON postrider.attempts USING gin (tenants);
CREATE INDEX attempts_by_message ON postrider.attempts USING hash (message_id);

-- What becomes of a deleted endpoint's backlog.
ALTER TABLE postrider.endpoints ADD COLUMN backlog_on_delete text NOT NULL DEFAULT 'discard'
    CHECK (backlog_on_delete IN ('discard', 'dead_letter'));

-- Takes one step for the erasure that has waited longest for one: deletes at most rows_max rows of
-- each kind. Says how many; -1: there is nothing to look at now. An erasure is erased when a look
-- has found nothing, 10 s after the request or later: until then workers may not know of it. For a
-- day it is looked at again every 10 minutes, for what came late from the topics; workers keep to it
-- for 15 days, longer than any horizon. Runs with the rights of who calls it.
CREATE FUNCTION postrider.erase_some(rows_max integer) RETURNS bigint
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
    -- A status tells of an endpoint: it goes with its customer.
    IF e.of_deleted THEN
      DELETE FROM postrider.endpoint_status s WHERE s.customer_id = e.customer_id;
      GET DIAGNOSTICS gone_status = ROW_COUNT;
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
REVOKE ALL ON FUNCTION postrider.erase_some(integer) FROM PUBLIC;
