-- Rights and policies of the three login roles. Run after the migrations whenever this text or the
-- roles' names have changed; :api, :indexer and :reader stand for the quoted names. It begins from
-- nothing each time, so it may be edited.

DO $$
DECLARE
  p record;
BEGIN
  FOR p IN SELECT policyname, tablename FROM pg_policies WHERE schemaname = 'postrider' LOOP
    EXECUTE format('DROP POLICY %I ON postrider.%I', p.policyname, p.tablename);
  END LOOP;
END $$;

REVOKE ALL ON SCHEMA postrider FROM PUBLIC, :api, :indexer, :reader;
REVOKE ALL ON ALL TABLES IN SCHEMA postrider FROM PUBLIC, :api, :indexer, :reader;
GRANT USAGE ON SCHEMA postrider TO :api, :indexer, :reader;
GRANT SELECT ON postrider.schema_migrations TO :api, :indexer, :reader;

-- The API: nobody without a setting, one customer with postrider.customer_id, everything that an
-- operator may do with postrider.operator, one key with postrider.key_id. It deletes no row.
GRANT SELECT, INSERT, UPDATE ON postrider.customers, postrider.grants, postrider.event_types,
    postrider.endpoints, postrider.subscriptions, postrider.api_keys TO :api;
GRANT SELECT, INSERT ON postrider.erasures TO :api;
GRANT SELECT, UPDATE ON postrider.dead_letters TO :api;
GRANT SELECT ON postrider.endpoint_status, postrider.attempts TO :api;
GRANT SELECT, INSERT, UPDATE ON postrider.idempotency_keys TO :api;

CREATE POLICY api_operator ON postrider.customers TO :api
    USING (postrider.is_operator()) WITH CHECK (postrider.is_operator());
CREATE POLICY api_customer ON postrider.customers FOR SELECT TO :api
    USING (id = postrider.current_customer());
-- A key's customer, to see that it is not deleted.
CREATE POLICY api_key ON postrider.customers FOR SELECT TO :api
    USING (id = (SELECT k.customer_id FROM postrider.api_keys k
                 WHERE k.key_id = postrider.current_key()));

CREATE POLICY api_operator ON postrider.grants TO :api
    USING (postrider.is_operator()) WITH CHECK (postrider.is_operator());
CREATE POLICY api_customer ON postrider.grants FOR SELECT TO :api
    USING (customer_id = postrider.current_customer());
-- Locking a grant (FOR SHARE) asks for this one; nothing can come of it, for no row may be written.
CREATE POLICY api_customer_lock ON postrider.grants FOR UPDATE TO :api
    USING (customer_id = postrider.current_customer()) WITH CHECK (false);

CREATE POLICY api_operator ON postrider.event_types TO :api
    USING (postrider.is_operator()) WITH CHECK (postrider.is_operator());
CREATE POLICY api_anyone ON postrider.event_types FOR SELECT TO :api USING (true);

CREATE POLICY api_operator ON postrider.endpoints TO :api
    USING (postrider.is_operator()) WITH CHECK (postrider.is_operator());
CREATE POLICY api_customer ON postrider.endpoints TO :api
    USING (customer_id = postrider.current_customer())
    WITH CHECK (customer_id = postrider.current_customer());

CREATE POLICY api_operator ON postrider.subscriptions TO :api
    USING (postrider.is_operator()) WITH CHECK (postrider.is_operator());
CREATE POLICY api_customer ON postrider.subscriptions TO :api
    USING (customer_id = postrider.current_customer())
    WITH CHECK (customer_id = postrider.current_customer());

CREATE POLICY api_operator ON postrider.erasures TO :api
    USING (postrider.is_operator()) WITH CHECK (postrider.is_operator());

-- A customer's own, not those of operators that tell of it. The settings are read once for each
-- statement and not for each row: an owner's rows are counted.
CREATE POLICY api_operator ON postrider.idempotency_keys TO :api
    USING ((SELECT postrider.is_operator())) WITH CHECK (postrider.is_operator());
CREATE POLICY api_customer ON postrider.idempotency_keys TO :api
    USING (owner = (SELECT postrider.current_customer()::text))
    WITH CHECK (owner = postrider.current_customer()::text
                AND customer_id = postrider.current_customer());

CREATE POLICY api_operator ON postrider.api_keys TO :api
    USING (postrider.is_operator()) WITH CHECK (postrider.is_operator());
CREATE POLICY api_key ON postrider.api_keys FOR SELECT TO :api
    USING (key_id = postrider.current_key());

CREATE POLICY api_customer ON postrider.dead_letters TO :api
    USING (customer_id = postrider.current_customer())
    WITH CHECK (customer_id = postrider.current_customer());

CREATE POLICY api_customer ON postrider.endpoint_status FOR SELECT TO :api
    USING (customer_id = postrider.current_customer());
CREATE POLICY api_customer ON postrider.attempts FOR SELECT TO :api
    USING (customer_id = postrider.current_customer());

-- The indexer: stores letters, status and attempts of any customer and how far it has read.
GRANT SELECT, INSERT, UPDATE ON postrider.dead_letters, postrider.indexer_offsets TO :indexer;
GRANT EXECUTE ON FUNCTION postrider.ensure_letter_days(date, date) TO :indexer;
CREATE POLICY indexer ON postrider.dead_letters TO :indexer USING (true) WITH CHECK (true);
GRANT SELECT, INSERT, UPDATE ON postrider.endpoint_status TO :indexer;
GRANT SELECT, INSERT ON postrider.attempts TO :indexer;
GRANT EXECUTE ON FUNCTION postrider.keep_attempt_days(integer) TO :indexer;
CREATE POLICY indexer ON postrider.endpoint_status TO :indexer USING (true) WITH CHECK (true);
CREATE POLICY indexer ON postrider.attempts TO :indexer USING (true) WITH CHECK (true);
-- It forgets what was asked to be.
GRANT DELETE ON postrider.dead_letters, postrider.attempts, postrider.endpoint_status TO :indexer;
GRANT SELECT, UPDATE ON postrider.erasures TO :indexer;
GRANT EXECUTE ON FUNCTION postrider.erase_some(integer) TO :indexer;
CREATE POLICY indexer ON postrider.erasures TO :indexer USING (true) WITH CHECK (true);
GRANT DELETE ON postrider.idempotency_keys TO :indexer;
GRANT SELECT (owner, route, key_sha256, customer_id, created_at)
    ON postrider.idempotency_keys TO :indexer;
CREATE POLICY indexer ON postrider.idempotency_keys TO :indexer USING (true) WITH CHECK (false);
-- And deletes what was deleted long ago, of which alone it sees anything.
GRANT DELETE ON postrider.customers, postrider.grants, postrider.event_types, postrider.endpoints,
    postrider.subscriptions, postrider.api_keys, postrider.erasures TO :indexer;
GRANT SELECT (id, deleted_at) ON postrider.customers TO :indexer;
GRANT SELECT (customer_id, tenant, deleted_at) ON postrider.grants TO :indexer;
GRANT SELECT (name, deleted_at) ON postrider.event_types TO :indexer;
GRANT SELECT (id, customer_id, deleted_at) ON postrider.endpoints TO :indexer;
GRANT SELECT (id, customer_id, endpoint_id, deleted_at) ON postrider.subscriptions TO :indexer;
GRANT SELECT (key_id, customer_id, revoked_at) ON postrider.api_keys TO :indexer;
GRANT EXECUTE ON FUNCTION postrider.purge_some(integer), postrider.drop_letter_days(integer),
    postrider.lock_letter_day(date), postrider.drop_letter_day(date) TO :indexer;
CREATE POLICY indexer ON postrider.customers TO :indexer
    USING (deleted_at < now() - interval '30 days');
CREATE POLICY indexer ON postrider.grants TO :indexer
    USING (deleted_at < now() - interval '30 days');
CREATE POLICY indexer ON postrider.event_types TO :indexer
    USING (deleted_at < now() - interval '30 days');
CREATE POLICY indexer ON postrider.endpoints TO :indexer
    USING (deleted_at < now() - interval '30 days');
CREATE POLICY indexer ON postrider.subscriptions TO :indexer
    USING (deleted_at < now() - interval '30 days');
CREATE POLICY indexer ON postrider.api_keys TO :indexer
    USING (revoked_at < now() - interval '30 days');

-- The reader: all desired state but keys, for snapshots; writes nothing.
GRANT SELECT ON postrider.customers, postrider.grants, postrider.event_types, postrider.endpoints,
    postrider.subscriptions, postrider.erasures TO :reader;
CREATE POLICY reader ON postrider.customers FOR SELECT TO :reader USING (true);
CREATE POLICY reader ON postrider.grants FOR SELECT TO :reader USING (true);
CREATE POLICY reader ON postrider.event_types FOR SELECT TO :reader USING (true);
CREATE POLICY reader ON postrider.endpoints FOR SELECT TO :reader USING (true);
CREATE POLICY reader ON postrider.subscriptions FOR SELECT TO :reader USING (true);
CREATE POLICY reader ON postrider.erasures FOR SELECT TO :reader USING (true);
