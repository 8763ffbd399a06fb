-- What workers have observed of endpoints, and attempts. The indexer alone writes them, from the
-- topic of reports; no statement of desired state touches them.

-- The last word of each part of an endpoint (0, unless it is spread over several key groups).
CREATE TABLE postrider.endpoint_status (
    endpoint_id              uuid NOT NULL,
    part                     integer NOT NULL,
    customer_id              uuid NOT NULL,
    observed_at              timestamptz NOT NULL,
    state                    text NOT NULL
        CHECK (state IN ('healthy', 'degraded', 'probing', 'paused', 'disabled')),
    reason                   text NOT NULL DEFAULT '',
    held_until               timestamptz,
    failing_since            timestamptz,
    auto_disabled_generation bigint NOT NULL DEFAULT 0,
    backlog_messages         bigint NOT NULL DEFAULT 0,
    backlog_bytes            bigint NOT NULL DEFAULT 0,
    request_window           integer NOT NULL DEFAULT 0,
    learned_events_max       bigint NOT NULL DEFAULT 0,
    learned_bytes_max        bigint NOT NULL DEFAULT 0,
    learned_milli_rate       bigint NOT NULL DEFAULT 0,
    last_outcome             text NOT NULL DEFAULT '',
    last_status              integer NOT NULL DEFAULT 0,
    last_attempt_at          timestamptz,
    last_success_at          timestamptz,
    PRIMARY KEY (endpoint_id, part)
) WITH (fillfactor = 70);
ALTER TABLE postrider.endpoint_status ENABLE ROW LEVEL SECURITY;
ALTER TABLE postrider.endpoint_status FORCE ROW LEVEL SECURITY;

-- Partitioned by the day (UTC) of the attempt, which is in its id too. A day without a partition
-- takes none: see keep_attempt_days.
CREATE TABLE postrider.attempts (
    day         date NOT NULL,
    id          uuid NOT NULL,
    customer_id uuid NOT NULL,
    endpoint_id uuid NOT NULL,
    message_id  text NOT NULL,
    messages    integer NOT NULL,
    attempt     integer NOT NULL,
    started_at  timestamptz NOT NULL,
    duration_ms bigint NOT NULL,
    outcome     text NOT NULL,
    status      integer NOT NULL,
    response    bytea NOT NULL,
    tenants     text[] NOT NULL,
    PRIMARY KEY (day, id)
) PARTITION BY RANGE (day);
CREATE INDEX attempts_by_endpoint ON postrider.attempts (customer_id, endpoint_id, id);
ALTER TABLE postrider.attempts ENABLE ROW LEVEL SECURITY;
ALTER TABLE postrider.attempts FORCE ROW LEVEL SECURITY;

-- Makes sure that the days from kept_days ago to two days ahead have partitions, and drops those
-- before; says how many it made and dropped. Runs as the owner, so that the indexer's role need not
-- own anything. Nobody has rights on a partition: all go through the table and its policies.
CREATE FUNCTION postrider.keep_attempt_days(kept_days integer) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
  today date := (now() AT TIME ZONE 'UTC')::date;
  first_day date := today - least(greatest(kept_days, 1), 60);
  d date := first_day;
  part text;
  changed integer := 0;
BEGIN
  PERFORM pg_advisory_xact_lock(hashtext('postrider.keep_attempt_days'));
  WHILE d <= today + 2 LOOP
    part := 'attempts_' || to_char(d, 'YYYYMMDD');
    IF to_regclass('postrider.' || part) IS NULL THEN
      EXECUTE format('CREATE TABLE postrider.%I PARTITION OF postrider.attempts '
                     'FOR VALUES FROM (%L) TO (%L)', part, d, d + 1);
      EXECUTE format('ALTER TABLE postrider.%I ENABLE ROW LEVEL SECURITY', part);
      EXECUTE format('ALTER TABLE postrider.%I FORCE ROW LEVEL SECURITY', part);
      changed := changed + 1;
    END IF;
    d := d + 1;
  END LOOP;
  FOR part IN
    SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent = 'postrider.attempts'::regclass
      AND c.relname < 'attempts_' || to_char(first_day, 'YYYYMMDD')
  LOOP
    EXECUTE format('DROP TABLE postrider.%I', part);
    changed := changed + 1;
  END LOOP;
  RETURN changed;
END $$;
REVOKE ALL ON FUNCTION postrider.keep_attempt_days(integer) FROM PUBLIC;
