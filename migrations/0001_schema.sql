-- The desired state (customers, keys, grants, event types, endpoints, subscriptions) and the letters.
--
-- Every table of desired state has generation (each change raises it), changed_xid (the transaction
-- that wrote the row last: snapshots are brought up to date by it) and deleted_at (removal is an
-- update, so that whoever reads changes sees it). Triggers keep all three honest.

CREATE FUNCTION postrider.current_customer() RETURNS uuid
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$ SELECT nullif(current_setting('postrider.customer_id', true), '')::uuid $$;

CREATE FUNCTION postrider.is_operator() RETURNS boolean
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$ SELECT coalesce(current_setting('postrider.operator', true), '') = 'on' $$;

CREATE FUNCTION postrider.current_key() RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$ SELECT nullif(current_setting('postrider.key_id', true), '') $$;

-- Milliseconds since the epoch.
CREATE FUNCTION postrider.millis(timestamptz) RETURNS bigint
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $$ SELECT floor(extract(epoch FROM $1) * 1000)::bigint $$;

CREATE FUNCTION postrider.stamp_change() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
  NEW.changed_xid := pg_current_xact_id();
  NEW.updated_at := now();
  IF TG_OP = 'UPDATE' THEN
    NEW.generation := OLD.generation + 1;
    NEW.created_at := OLD.created_at;
  ELSE
    NEW.generation := 1;
  END IF;
  RETURN NEW;
END $$;

CREATE FUNCTION postrider.notify_change() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
  PERFORM pg_notify('postrider_changed', '');
  RETURN NULL;
END $$;

CREATE TABLE postrider.customers (
    id          uuid PRIMARY KEY,
    name        text NOT NULL CHECK (octet_length(name) BETWEEN 1 AND 200),
    generation  bigint NOT NULL DEFAULT 1,
    changed_xid xid8 NOT NULL,
    deleted_at  timestamptz,
    created_at  timestamptz NOT NULL DEFAULT now(),
    updated_at  timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE postrider.grants (
    customer_id uuid NOT NULL REFERENCES postrider.customers,
    tenant      text NOT NULL CHECK (octet_length(tenant) BETWEEN 1 AND 200),
    generation  bigint NOT NULL DEFAULT 1,
    changed_xid xid8 NOT NULL,
    deleted_at  timestamptz,
    created_at  timestamptz NOT NULL DEFAULT now(),
    updated_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (customer_id, tenant)
);

CREATE TABLE postrider.event_types (
    name        text PRIMARY KEY CHECK (octet_length(name) BETWEEN 1 AND 200),
    description text NOT NULL DEFAULT '',
    generation  bigint NOT NULL DEFAULT 1,
    changed_xid xid8 NOT NULL,
    deleted_at  timestamptz,
    created_at  timestamptz NOT NULL DEFAULT now(),
    updated_at  timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE postrider.endpoints (
    id             uuid PRIMARY KEY,
    customer_id    uuid NOT NULL REFERENCES postrider.customers,
    url            text NOT NULL CHECK (octet_length(url) BETWEEN 1 AND 2000),
    description    text NOT NULL DEFAULT '',
    mode           text NOT NULL CHECK (mode IN ('batch', 'streaming')),
    events_max     integer NOT NULL CHECK (events_max BETWEEN 1 AND 5000),
    bytes_max      integer NOT NULL CHECK (bytes_max BETWEEN 1024 AND 10485760),
    wait_max_ms    integer NOT NULL CHECK (wait_max_ms >= 0),
    header_names   text[] NOT NULL DEFAULT '{}',
    header_values  text[] NOT NULL DEFAULT '{}',
    attempts       integer NOT NULL CHECK (attempts >= 1),
    horizon_ms     bigint NOT NULL CHECK (horizon_ms > 0),
    first_delay_ms bigint NOT NULL CHECK (first_delay_ms > 0),
    factor         double precision NOT NULL CHECK (factor >= 1),
    cap_ms         bigint NOT NULL CHECK (cap_ms > 0),
    window_max     integer NOT NULL CHECK (window_max BETWEEN 1 AND 256),
    timeout_ms     integer NOT NULL CHECK (timeout_ms > 0),
    enabled        boolean NOT NULL DEFAULT true,
    -- The signing secrets, sealed with the master key and bound to this row. There is no other
    -- column that holds a secret.
    secrets_sealed bytea NOT NULL,
    generation     bigint NOT NULL DEFAULT 1,
    changed_xid    xid8 NOT NULL,
    deleted_at     timestamptz,
    created_at     timestamptz NOT NULL DEFAULT now(),
    updated_at     timestamptz NOT NULL DEFAULT now(),
    CHECK (cardinality(header_names) = cardinality(header_values)),
    UNIQUE (customer_id, id)
);

CREATE TABLE postrider.subscriptions (
    id          uuid PRIMARY KEY,
    customer_id uuid NOT NULL REFERENCES postrider.customers,
    endpoint_id uuid NOT NULL,
    event_types text[] NOT NULL CHECK (cardinality(event_types) BETWEEN 1 AND 1000),
    scope_kind  text NOT NULL CHECK (scope_kind IN ('granted', 'tenants', 'departments')),
    tenants     text[] NOT NULL DEFAULT '{}',
    departments text[] NOT NULL DEFAULT '{}',
    generation  bigint NOT NULL DEFAULT 1,
    changed_xid xid8 NOT NULL,
    deleted_at  timestamptz,
    created_at  timestamptz NOT NULL DEFAULT now(),
    updated_at  timestamptz NOT NULL DEFAULT now(),
    FOREIGN KEY (customer_id, endpoint_id) REFERENCES postrider.endpoints (customer_id, id),
    CHECK (scope_kind = 'granted' OR cardinality(tenants) BETWEEN 1 AND 1000),
    CHECK (scope_kind <> 'departments'
           OR (cardinality(tenants) = 1 AND cardinality(departments) BETWEEN 1 AND 1000))
);
CREATE INDEX subscriptions_by_customer ON postrider.subscriptions (customer_id, id);
CREATE INDEX subscriptions_by_endpoint ON postrider.subscriptions (endpoint_id);

CREATE TABLE postrider.api_keys (
    key_id        text PRIMARY KEY CHECK (octet_length(key_id) = 12),
    secret_sha256 bytea NOT NULL CHECK (octet_length(secret_sha256) = 32),
    scope         text NOT NULL CHECK (scope IN ('operator', 'customer', 'publisher')),
    customer_id   uuid REFERENCES postrider.customers,
    event_types   text[] NOT NULL DEFAULT '{}',
    tenants       text[] NOT NULL DEFAULT '{}',
    name          text NOT NULL DEFAULT '',
    revoked_at    timestamptz,
    generation    bigint NOT NULL DEFAULT 1,
    changed_xid   xid8 NOT NULL,
    created_at    timestamptz NOT NULL DEFAULT now(),
    updated_at    timestamptz NOT NULL DEFAULT now(),
    CHECK ((scope = 'customer') = (customer_id IS NOT NULL))
);
CREATE INDEX api_keys_by_time ON postrider.api_keys (created_at, key_id);
CREATE INDEX api_keys_by_customer ON postrider.api_keys (customer_id);

-- What a poll for changes reads: rows at or past the oldest transaction that it could not see.
CREATE INDEX customers_changed ON postrider.customers (changed_xid);
CREATE INDEX grants_changed ON postrider.grants (changed_xid);
CREATE INDEX event_types_changed ON postrider.event_types (changed_xid);
CREATE INDEX endpoints_changed ON postrider.endpoints (changed_xid);
CREATE INDEX subscriptions_changed ON postrider.subscriptions (changed_xid);

DO $$
DECLARE
  t text;
BEGIN
  FOREACH t IN ARRAY ARRAY['customers', 'grants', 'event_types', 'endpoints', 'subscriptions',
                           'api_keys'] LOOP
    EXECUTE format('CREATE TRIGGER stamp_change BEFORE INSERT OR UPDATE ON postrider.%I '
                   'FOR EACH ROW EXECUTE FUNCTION postrider.stamp_change()', t);
    IF t <> 'api_keys' THEN
      EXECUTE format('CREATE TRIGGER notify_change AFTER INSERT OR UPDATE OR DELETE '
                     'ON postrider.%I FOR EACH STATEMENT '
                     'EXECUTE FUNCTION postrider.notify_change()', t);
    END IF;
    EXECUTE format('ALTER TABLE postrider.%I ENABLE ROW LEVEL SECURITY', t);
    EXECUTE format('ALTER TABLE postrider.%I FORCE ROW LEVEL SECURITY', t);
  END LOOP;
END $$;

-- Dead letters. The id's first 48 bits are the dispatch time in ms; day is that day in UTC, and the
-- table is partitioned by it, so that old days go away whole. What comes from outside and need not
-- be text that Postgres can hold (a NUL is legal in JSON) is bytea.
CREATE TABLE postrider.dead_letters (
    day            date NOT NULL,
    id             uuid NOT NULL,
    customer_id    uuid NOT NULL,
    endpoint_id    uuid NOT NULL,
    message_id     text NOT NULL,
    event_id       bytea NOT NULL,
    type           text NOT NULL,
    tenant         text NOT NULL,
    department     bytea,
    event_time     timestamptz NOT NULL,
    reason         text NOT NULL,
    attempts       integer NOT NULL,
    last_status    integer NOT NULL DEFAULT 0,
    last_outcome   text NOT NULL DEFAULT '',
    data           bytea NOT NULL,
    state          text NOT NULL DEFAULT 'open'
                   CHECK (state IN ('open', 'leased', 'replaying', 'closed')),
    closed_as      text CHECK (closed_as IN ('acked', 'delivered', 'discarded', 'expired',
                                             'withheld')),
    -- Open letters may be polled from this moment on; leased ones when their lease is over.
    available_at   timestamptz NOT NULL DEFAULT now(),
    leases         integer NOT NULL DEFAULT 0,
    receipt_sha256 bytea CHECK (octet_length(receipt_sha256) = 32),
    created_at     timestamptz NOT NULL DEFAULT now(),
    updated_at     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (day, id),
    CHECK ((state = 'closed') = (closed_as IS NOT NULL))
) PARTITION BY RANGE (day);
CREATE INDEX dead_letters_by_customer ON postrider.dead_letters (customer_id, id);
CREATE INDEX dead_letters_by_endpoint ON postrider.dead_letters (endpoint_id, id);
CREATE INDEX dead_letters_to_poll ON postrider.dead_letters (customer_id, available_at, id)
    WHERE state IN ('open', 'leased');
ALTER TABLE postrider.dead_letters ENABLE ROW LEVEL SECURITY;
ALTER TABLE postrider.dead_letters FORCE ROW LEVEL SECURITY;

-- Letters of a day that has no partition of its own. Nobody has rights on a partition: all go
-- through the table and its policies.
CREATE TABLE postrider.dead_letters_default PARTITION OF postrider.dead_letters DEFAULT;
ALTER TABLE postrider.dead_letters_default ENABLE ROW LEVEL SECURITY;
ALTER TABLE postrider.dead_letters_default FORCE ROW LEVEL SECURITY;

-- The day of a letter's id.
CREATE FUNCTION postrider.letter_day(id uuid) RETURNS date
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $$ SELECT (timestamp '1970-01-01' + interval '1 millisecond'
                  * ('x' || lpad(substr(replace(id::text, '-', ''), 1, 12), 16, '0'))::bit(64)::bigint
                 )::date $$;

-- Makes sure that the days from first_day to last_day have partitions; says how many it made. Days
-- more than 60 back or 7 ahead get none, nor do days of which the default partition has letters.
-- Runs as the owner, so that the indexer's role need not own anything.
CREATE FUNCTION postrider.ensure_letter_days(first_day date, last_day date) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
  d date := greatest(first_day, current_date - 60);
  until date := least(last_day, current_date + 7);
  part text;
  made integer := 0;
BEGIN
  WHILE d <= until LOOP
    part := 'dead_letters_' || to_char(d, 'YYYYMMDD');
    IF to_regclass('postrider.' || part) IS NULL THEN
      PERFORM pg_advisory_xact_lock(hashtext('postrider.ensure_letter_days'));
      IF to_regclass('postrider.' || part) IS NULL THEN
        BEGIN
          EXECUTE format('CREATE TABLE postrider.%I (LIKE postrider.dead_letters '
                         'INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', part);
          EXECUTE format('ALTER TABLE postrider.%I ENABLE ROW LEVEL SECURITY', part);
          EXECUTE format('ALTER TABLE postrider.%I FORCE ROW LEVEL SECURITY', part);
          EXECUTE format('ALTER TABLE postrider.dead_letters ATTACH PARTITION postrider.%I '
                         'FOR VALUES FROM (%L) TO (%L)', part, d, d + 1);
          made := made + 1;
        EXCEPTION WHEN check_violation THEN
          NULL;
        END;
      END IF;
    END IF;
    d := d + 1;
  END LOOP;
  RETURN made;
END $$;
REVOKE ALL ON FUNCTION postrider.ensure_letter_days(date, date) FROM PUBLIC;

-- How far the indexer has read: written in the transaction that stores what it read.
CREATE TABLE postrider.indexer_offsets (
    topic       text NOT NULL,
    partition   integer NOT NULL,
    next_offset bigint NOT NULL,
    updated_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (topic, partition)
);
