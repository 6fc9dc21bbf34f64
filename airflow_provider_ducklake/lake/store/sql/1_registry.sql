-- What the store knows of its catalogs. Nothing here is visible to tenants.

CREATE TABLE ducklake.store (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    version integer NOT NULL,
    root text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);

-- A dropped catalog keeps its row: its files wait for deletion, and no other may take its root.
CREATE TABLE ducklake.ducklake_catalog (
    catalog_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY CHECK (catalog_id < 2147483648),
    catalog_uuid uuid NOT NULL DEFAULT gen_random_uuid(),
    catalog_name text NOT NULL,
    parent_id bigint,
    parent_snapshot bigint,
    lineage_id bigint NOT NULL,
    root text NOT NULL,
    state text NOT NULL DEFAULT 'live' CHECK (state IN ('live', 'dropped')),
    -- Counted so that forking and scheduling files exclude each other, see 4_sharing.sql.
    forks integer NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL DEFAULT now(),
    dropped_at timestamptz
);
CREATE UNIQUE INDEX ducklake_catalog_name ON ducklake.ducklake_catalog (lower(catalog_name))
    WHERE state = 'live';
-- For those who ask by the name as it is written: only such a condition goes below security_barrier.
CREATE INDEX ducklake_catalog_exact_name ON ducklake.ducklake_catalog (catalog_name)
    WHERE state = 'live';
CREATE INDEX ducklake_catalog_dropped ON ducklake.ducklake_catalog (dropped_at)
    WHERE state = 'dropped';

CREATE TABLE ducklake.catalog_grant (
    catalog_id bigint NOT NULL,
    role_name text NOT NULL,
    writable boolean NOT NULL,
    PRIMARY KEY (catalog_id, role_name)
);
CREATE INDEX catalog_grant_role ON ducklake.catalog_grant (role_name);

-- Places outside its root that a catalog may name: what a login of the service allowed, or named
-- there itself. As ducklake.place spells them, with a slash behind, files too.
CREATE TABLE ducklake.catalog_prefix (
    catalog_id bigint NOT NULL,
    prefix text NOT NULL,
    PRIMARY KEY (catalog_id, prefix)
);

-- Files that more than one catalog has read since a fork: who owns the path, who still reads it.
CREATE TABLE ducklake.shared_file (
    file_id bigint PRIMARY KEY,
    owner_id bigint NOT NULL,
    path text NOT NULL,
    readers integer NOT NULL
);
CREATE TABLE ducklake.file_reader (
    file_id bigint NOT NULL,
    catalog_id bigint NOT NULL,
    PRIMARY KEY (catalog_id, file_id)
);

CREATE TABLE ducklake.maintenance_ledger (
    entry_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    catalog_id bigint NOT NULL,
    operation text NOT NULL,
    started_at timestamptz NOT NULL,
    seconds double precision NOT NULL,
    author text,
    changed boolean NOT NULL,
    snapshot_id bigint,
    files_in bigint NOT NULL DEFAULT 0,
    files_out bigint NOT NULL DEFAULT 0,
    bytes_in bigint NOT NULL DEFAULT 0,
    bytes_out bigint NOT NULL DEFAULT 0,
    files_left bigint NOT NULL DEFAULT 0,
    error text
);
CREATE INDEX maintenance_ledger_catalog ON ducklake.maintenance_ledger (catalog_id, started_at);
-- What found nothing to do, which a fleet plan does not propose again so soon: few, of very many.
CREATE INDEX maintenance_ledger_idle ON ducklake.maintenance_ledger (started_at)
    WHERE NOT changed AND error IS NULL;
