-- The tenant `customer:<id>`, under which a customer is told about its own endpoints: every customer
-- is granted its own from the beginning, and nobody that of another.

-- An id as REST shows it, without its prefix: 26 characters of Crockford's base32.
CREATE FUNCTION postrider.base32(id uuid) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
  SELECT string_agg(
      substr('0123456789abcdefghjkmnpqrstvwxyz',
             1 + (substring(B'00' || ('x' || replace(id::text, '-', ''))::bit(128)
                            FROM 5 * n + 1 FOR 5))::bit(5)::integer, 1), '' ORDER BY n)
  FROM generate_series(0, 25) AS n $$;

CREATE FUNCTION postrider.reserved_tenant(customer uuid) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $$ SELECT 'customer:cus_' || postrider.base32(customer) $$;

CREATE FUNCTION postrider.grant_reserved_tenant() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
  INSERT INTO postrider.grants (customer_id, tenant)
  VALUES (NEW.id, postrider.reserved_tenant(NEW.id));
  RETURN NULL;
END $$;
CREATE TRIGGER grant_reserved_tenant AFTER INSERT ON postrider.customers
    FOR EACH ROW EXECUTE FUNCTION postrider.grant_reserved_tenant();

-- The owner is bound by the policies otherwise, and has none.
ALTER TABLE postrider.customers NO FORCE ROW LEVEL SECURITY;
ALTER TABLE postrider.grants NO FORCE ROW LEVEL SECURITY;
DELETE FROM postrider.grants WHERE tenant LIKE 'customer:%';
INSERT INTO postrider.grants (customer_id, tenant)
SELECT id, postrider.reserved_tenant(id) FROM postrider.customers WHERE deleted_at IS NULL;
ALTER TABLE postrider.grants
    ADD CONSTRAINT grants_reserved_check
    CHECK (tenant NOT LIKE 'customer:%' OR tenant = postrider.reserved_tenant(customer_id));
ALTER TABLE postrider.customers FORCE ROW LEVEL SECURITY;
ALTER TABLE postrider.grants FORCE ROW LEVEL SECURITY;
