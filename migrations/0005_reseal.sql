-- Secrets can be sealed anew with another master key: `postrider secrets reseal`. To its customer,
-- and to its worker, such an endpoint is the one that it was: no new generation, which would overrule
-- an automatic disable and make a client's If-Match fail. Snapshots take the row up all the same.

CREATE OR REPLACE FUNCTION postrider.stamp_change() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
DECLARE
  resealed CONSTANT text[] := ARRAY['secrets_sealed', 'auth_sealed', 'tls_key_sealed', 'changed_xid'];
BEGIN
  IF TG_OP = 'UPDATE' AND TG_TABLE_NAME = 'endpoints'
     AND coalesce(current_setting('postrider.resealing', true), '') = 'on'
     AND to_jsonb(NEW) - resealed = to_jsonb(OLD) - resealed THEN
    NEW.changed_xid := pg_current_xact_id();
    RETURN NEW;
  END IF;
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
