-- All that a customer may set about how an endpoint is sent to. The defaults are those of
-- subscriptions/registry/endpoint.h: endpoints that were there before behave as they did.

ALTER TABLE postrider.endpoints
    ADD COLUMN body_format text NOT NULL DEFAULT 'envelope'
        CHECK (body_format IN ('envelope', 'raw', 'cloudevents', 'cloudevents_binary', 'ndjson')),
    ADD COLUMN body_compression text NOT NULL DEFAULT 'none'
        CHECK (body_compression IN ('none', 'gzip', 'zstd')),
    ADD COLUMN signature text NOT NULL DEFAULT 'hmac'
        CHECK (signature IN ('hmac', 'ed25519', 'both')),
    ADD COLUMN partial_ack boolean NOT NULL DEFAULT false,
    -- The delays before the second try, the third, ...; empty: they are reckoned.
    ADD COLUMN schedule_ms bigint[] NOT NULL DEFAULT '{}'
        CHECK (cardinality(schedule_ms) <= 49 AND 1 <= ALL (schedule_ms)),
    ADD COLUMN requests_per_second double precision CHECK (requests_per_second > 0),
    ADD COLUMN messages_per_second double precision CHECK (messages_per_second > 0),
    ADD COLUMN bytes_per_second double precision CHECK (bytes_per_second > 0),
    ADD COLUMN order_kind text NOT NULL DEFAULT 'none'
        CHECK (order_kind IN ('none', 'key', 'endpoint')),
    ADD COLUMN order_key_pointer text NOT NULL DEFAULT '',
    ADD COLUMN order_blocked text NOT NULL DEFAULT 'hold'
        CHECK (order_blocked IN ('hold', 'dead_letter')),
    ADD COLUMN parallelism integer NOT NULL DEFAULT 1 CHECK (parallelism BETWEEN 1 AND 64),
    ADD COLUMN backlog_bytes_max bigint NOT NULL DEFAULT 1073741824 CHECK (backlog_bytes_max > 0),
    ADD COLUMN backlog_age_max_ms bigint NOT NULL DEFAULT 259200000 CHECK (backlog_age_max_ms > 0),
    ADD COLUMN backlog_policy text NOT NULL DEFAULT 'dead_letter_oldest'
        CHECK (backlog_policy IN ('dead_letter_oldest', 'collapse_by_key')),
    ADD COLUMN backlog_collapse_pointer text NOT NULL DEFAULT '',
    ADD COLUMN paused_by_customer boolean NOT NULL DEFAULT false,
    ADD COLUMN paused_by_operator boolean NOT NULL DEFAULT false,
    -- What the last resumption said; resume_from goes with 'from'.
    ADD COLUMN resume_kind text NOT NULL DEFAULT 'all'
        CHECK (resume_kind IN ('all', 'from', 'newest')),
    ADD COLUMN resume_from timestamptz NOT NULL DEFAULT 'epoch',
    ADD COLUMN resumed_at timestamptz NOT NULL DEFAULT 'epoch',
    -- How we prove to the endpoint who we are. What is secret of it is sealed and bound to this row
    -- as secrets_sealed is; empty: there is none.
    ADD COLUMN auth_kind text NOT NULL DEFAULT 'none'
        CHECK (auth_kind IN ('none', 'basic', 'bearer', 'header', 'oauth2')),
    ADD COLUMN auth_name text NOT NULL DEFAULT '',
    ADD COLUMN auth_token_url text NOT NULL DEFAULT '',
    ADD COLUMN auth_scope text NOT NULL DEFAULT '',
    ADD COLUMN auth_sealed bytea NOT NULL DEFAULT '',
    ADD COLUMN ca_pem text NOT NULL DEFAULT '' CHECK (octet_length(ca_pem) <= 65536),
    ADD COLUMN certificate_pem text NOT NULL DEFAULT ''
        CHECK (octet_length(certificate_pem) <= 65536),
    ADD COLUMN tls_key_sealed bytea NOT NULL DEFAULT '',
    ADD CONSTRAINT endpoints_parallel_check CHECK (order_kind = 'none' OR parallelism = 1),
    ADD CONSTRAINT endpoints_body_check
        CHECK (mode = 'streaming' OR body_format NOT IN ('raw', 'cloudevents_binary')),
    ADD CONSTRAINT endpoints_auth_check CHECK ((auth_kind = 'none') = (auth_sealed = '')),
    ADD CONSTRAINT endpoints_tls_check CHECK ((certificate_pem = '') = (tls_key_sealed = ''));
