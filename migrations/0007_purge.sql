-- What nobody needs any more goes: rows of desired state 30 days after they were deleted (whoever
-- reads changes has seen that long before), and days of letters when all of theirs are past their
-- retention. Both in steps, with the rights of who calls them.

CREATE INDEX grants_deleted ON postrider.grants (deleted_at) WHERE deleted_at IS NOT NULL;
CREATE INDEX endpoints_deleted ON postrider.endpoints (deleted_at) WHERE deleted_at IS NOT NULL;
CREATE INDEX subscriptions_deleted ON postrider.subscriptions (deleted_at)
    WHERE deleted_at IS NOT NULL;

-- Deletes at most rows_max rows of each kind; says how many. A key that is revoked goes as they do.
-- A row that another one still names stays.
CREATE FUNCTION postrider.purge_some(rows_max integer) RETURNS bigint
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
REVOKE ALL ON FUNCTION postrider.purge_some(integer) FROM PUBLIC;

-- For drop_letter_days: a day's partition, locked against those who would write into it and
-- dropped. As the owner, so that the indexer's role need not own anything; both do nothing for a day
-- that a letter of today may still be of (a message waits for 14 days at most).
CREATE FUNCTION postrider.lock_letter_day(d date) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
  part text := 'dead_letters_' || to_char(d, 'YYYYMMDD');
BEGIN
  IF d >= (now() AT TIME ZONE 'UTC')::date - 15
     OR to_regclass('postrider.' || part) IS NULL THEN
    RETURN false;
  END IF;
  EXECUTE format('LOCK TABLE postrider.%I IN ACCESS EXCLUSIVE MODE', part);
  RETURN true;
END $$;
REVOKE ALL ON FUNCTION postrider.lock_letter_day(date) FROM PUBLIC;

CREATE FUNCTION postrider.drop_letter_day(d date) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    AS $$
BEGIN
  IF postrider.lock_letter_day(d) THEN
    EXECUTE format('DROP TABLE postrider.%I', 'dead_letters_' || to_char(d, 'YYYYMMDD'));
  END IF;
END $$;
REVOKE ALL ON FUNCTION postrider.drop_letter_day(date) FROM PUBLIC;

-- Drops the earliest day of which no letter is younger than kept_days; says how many, 0 or 1. A
-- letter that is of such a day all the same makes its partition again.
CREATE FUNCTION postrider.drop_letter_days(kept_days integer) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET lock_timeout = '1s'
    AS $$
DECLARE
  d date;
BEGIN
  FOR d IN
    SELECT to_date(right(c.relname, 8), 'YYYYMMDD')
    FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent = 'postrider.dead_letters'::regclass AND c.relname ~ '^dead_letters_\d{8}$'
    ORDER BY 1
  LOOP
    EXIT WHEN d >= (now() AT TIME ZONE 'UTC')::date - greatest(kept_days, 15);
    CONTINUE WHEN EXISTS (
      SELECT 1 FROM postrider.dead_letters WHERE day = d
        AND created_at > now() - make_interval(days => kept_days));
    CONTINUE WHEN NOT postrider.lock_letter_day(d);
    CONTINUE WHEN EXISTS (
      SELECT 1 FROM postrider.dead_letters WHERE day = d
        AND created_at > now() - make_interval(days => kept_days));
    PERFORM postrider.drop_letter_day(d);
    RETURN 1;
  END LOOP;
  RETURN 0;
END $$;
REVOKE ALL ON FUNCTION postrider.drop_letter_days(integer) FROM PUBLIC;
