-- Of this account more is to be removed than a deletion does (wire.md O.1): an operator erased it.
ALTER TABLE deletions ADD COLUMN erase boolean NOT NULL DEFAULT false;

-- What stands in place of an erased account's address, so that it still counts for the address's lifetime. Null: nothing was
-- ever erased here. Without the secret nobody can tell an address from it by trying.
CREATE FUNCTION erased_address(address text) RETURNS text LANGUAGE sql STABLE AS $$
  SELECT 'erased:' || encode(sha256(value || convert_to(address, 'UTF8')), 'hex') FROM secrets WHERE name = 'erased_addresses'
$$;
