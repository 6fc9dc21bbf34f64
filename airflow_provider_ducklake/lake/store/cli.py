"""The store's command line: making it, and creating, forking, granting and dropping catalogs."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from airflow_provider_ducklake.lake.errors import LakeError
from airflow_provider_ducklake.lake.location import PASSWORD_VARIABLE, CatalogLocation
from airflow_provider_ducklake.lake.store.store import CatalogStore
from airflow_provider_ducklake.storage import StorageOptions

SOURCE_PASSWORD_VARIABLE: Final = "DUCKLAKE_SOURCE_PASSWORD"
DONE, FAILED, WRONG_USAGE = 0, 1, 2

Result = dict[str, Any] | list[dict[str, Any]] | None


def _create(store: CatalogStore, given: argparse.Namespace) -> Result:
    return store.create_catalog(
        given.name,
        root=given.root,
        encrypted=given.encrypted,
        inlining_row_limit=given.inlining_row_limit,
        if_not_exists=given.if_not_exists,
    ).to_dict()


def _fork(store: CatalogStore, given: argparse.Namespace) -> Result:
    return store.fork_catalog(
        given.source,
        given.name,
        snapshot_id=given.snapshot,
        root=given.root,
        if_not_exists=given.if_not_exists,
    ).to_dict()


def _drop(store: CatalogStore, given: argparse.Namespace) -> Result:
    dropped = store.drop_catalog(given.name, if_exists=given.if_exists, dry_run=given.dry_run)
    return dropped.to_dict() if dropped else None


def _grant(store: CatalogStore, given: argparse.Namespace) -> Result:
    store.grant(given.name, given.role, writable=not given.read_only)
    return {"name": given.name, "role": given.role, "writable": not given.read_only}


def _revoke(store: CatalogStore, given: argparse.Namespace) -> Result:
    return {"name": given.name, "role": given.role, "was": store.revoke(given.name, given.role)}


def _allow(store: CatalogStore, given: argparse.Namespace) -> Result:
    changed = store.allow(given.name, given.place, allowed=not given.revoke)
    return {"name": given.name, "place": given.place, "changed": changed}


def _list(store: CatalogStore, given: argparse.Namespace) -> Result:
    found = store.list_catalogs(given.pattern, limit=given.limit)
    return [entry.to_dict() for entry in found]


def _purge(store: CatalogStore, given: argparse.Namespace) -> Result:
    result = store.purge(
        StorageOptions.from_environment(),
        older_than=given.older_than,
        force=given.force,
        dry_run=given.dry_run,
    )
    result.require_all()
    return result.to_dict()


def _import(store: CatalogStore, given: argparse.Namespace) -> Result:
    from airflow_provider_ducklake.lake.transfer.into_store import import_catalog

    source = CatalogLocation.of_argument(
        given.source,
        argument="the source",
        variable=SOURCE_PASSWORD_VARIABLE,
        metadata_schema=given.source_schema,
        data_path=given.source_data_path,
    )
    source = replace(source, password=os.environ.get(SOURCE_PASSWORD_VARIABLE))
    return import_catalog(
        store,
        source,
        given.name,
        source_catalog=given.source_catalog,
        root=given.root,
        if_not_exists=given.if_not_exists,
    ).to_dict()


def _export(store: CatalogStore, given: argparse.Namespace) -> Result:
    from airflow_provider_ducklake.lake.lake import Lake
    from airflow_provider_ducklake.lake.transfer.export import export_catalog

    location = CatalogLocation.of_argument(given.attach, catalog=given.name)
    location = replace(location, password=os.environ.get(PASSWORD_VARIABLE))
    target = CatalogLocation.parse(given.target)
    return export_catalog(
        Lake.open(location),
        target,
        snapshot_id=given.snapshot,
        replace_older=given.replace_older,
    ).to_dict()


VERBS: Final[dict[str, tuple[Callable[[CatalogStore, argparse.Namespace], Result], str]]] = {
    "init": (lambda s, g: s.init(g.root).to_dict(), "make the store, or upgrade it"),
    "upgrade": (lambda s, _: s.upgrade().to_dict(), "bring the store to the newest version"),
    "status": (lambda s, _: s.status().to_dict(), "say what the store is"),
    "create": (_create, "create a catalog"),
    "fork": (_fork, "create a catalog that begins where another stands"),
    "rename": (
        lambda s, g: s.rename_catalog(g.name, g.new_name).to_dict(),
        "give a catalog another name",
    ),
    "drop": (_drop, "drop a catalog, and schedule its files for deletion"),
    "import": (_import, "make a lake that lives elsewhere a catalog of the store"),
    "export": (_export, "write a catalog into a DuckDB or SQLite file of its own"),
    "purge": (_purge, "delete the files of dropped catalogs"),
    "list": (_list, "list catalogs"),
    "grant": (_grant, "let a database role use a catalog"),
    "revoke": (_revoke, "take a catalog away from a role"),
    "allow": (_allow, "let a catalog register files of a place outside its root"),
}


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(
        prog="python -m airflow_provider_ducklake.lake.store",
        description="Administer a shared store of DuckLake catalogs in PostgreSQL. A password "
        f"comes from the environment ({PASSWORD_VARIABLE}) or from libpq's own files, storage "
        "options from DUCKLAKE_STORAGE_<KEY>.",
    )
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument(
        "--attach", required=True, help="ducklake:postgres:… without password, as a job takes it"
    )
    shared.add_argument("--json", action="store_true", help="print the result as JSON")
    verbs = made.add_subparsers(dest="verb", required=True, metavar="VERB")
    of = {
        verb: verbs.add_parser(verb, help=text, description=text, parents=[shared])
        for verb, (_, text) in VERBS.items()
    }
    of["init"].add_argument("--root", required=True, help="directory or URL for all catalogs")
    of["fork"].add_argument("source", help="catalog to fork")
    for verb in (
        "create",
        "fork",
        "rename",
        "drop",
        "grant",
        "revoke",
        "allow",
        "import",
        "export",
    ):
        of[verb].add_argument("name", help="name of the catalog")
    of["rename"].add_argument("new_name", help="its new name")
    of["list"].add_argument("pattern", nargs="?", default="%", help="SQL LIKE pattern of names")
    of["list"].add_argument("--limit", type=int, help="at most so many")
    of["allow"].add_argument("place", help="full path or URL of a directory or a file")
    of["allow"].add_argument("--revoke", action="store_true", help="no longer")
    for verb in ("grant", "revoke"):
        of[verb].add_argument("role", help="database role")
    of["grant"].add_argument("--read-only", action="store_true", help="reading only")
    for verb in ("create", "fork"):
        of[verb].add_argument("--root", help="where its files go")
    for verb in ("create", "fork", "import"):
        of[verb].add_argument(
            "--if-not-exists", action="store_true", help="the same one there is fine"
        )
    of["create"].add_argument("--encrypted", action="store_true", help="encrypt data files")
    of["create"].add_argument(
        "--inlining-row-limit",
        type=int,
        default=0,
        help="inserts of at most so many rows stay in the catalog; tenants' roles need 0",
    )
    of["import"].add_argument("source", help="its ATTACH string: ducklake:sqlite:FILE, …")
    of["import"].add_argument("--source-schema", help="schema of its metadata tables")
    of["import"].add_argument("--source-data-path", help="its data path, if it does not say")
    of["import"].add_argument("--source-catalog", help="which of several catalogs in it")
    of["import"].add_argument("--root", help="where new files go; its data path by default")
    of["export"].add_argument("target", help="ducklake:duckdb:FILE or ducklake:sqlite:FILE")
    of["export"].add_argument("--snapshot", type=int, help="freeze it at this snapshot")
    of["fork"].add_argument("--snapshot", type=int, help="a kept snapshot instead of the newest")
    of["purge"].add_argument(
        "--older-than", default="2 days", help="how long ago they were scheduled"
    )
    of["purge"].add_argument("--force", action="store_true", help="allow less than two days")
    for verb in ("purge", "drop"):
        of[verb].add_argument("--dry-run", action="store_true", help="say what would go, no more")
    of["export"].add_argument(
        "--replace-older", action="store_true", help="replace an older export of the catalog"
    )
    of["drop"].add_argument("--if-exists", action="store_true", help="none of that name is fine")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status: 0 done, 1 failed, 2 wrong usage."""
    try:
        given = parser().parse_args(arguments)
    except SystemExit as leave:
        return WRONG_USAGE if leave.code else DONE
    try:
        location = CatalogLocation.of_argument(given.attach)
    except LakeError as error:
        return _failed("wrong usage", error, WRONG_USAGE)
    try:
        location = replace(location, password=os.environ.get(PASSWORD_VARIABLE))
        with CatalogStore.at(location) as store:
            result = VERBS[given.verb][0](store, given)
    except LakeError as error:
        return _failed(f"ERROR {type(error).__name__}", error, FAILED)
    sys.stdout.write((json.dumps(result) if given.json else "\n".join(_lines(result))) + "\n")
    return DONE


def _failed(how: str, error: LakeError, status: int) -> int:
    print(f"ducklake: {how}: {' '.join(str(error).split())}", file=sys.stderr)
    return status


def _lines(result: Result) -> Iterable[str]:
    if isinstance(result, list):
        return _table(result)
    entries = result or {"nothing": "was there to do"}
    return [f"{name:<16}{value}" for name, value in entries.items() if value is not None]


def _table(entries: Sequence[dict[str, Any]]) -> Iterable[str]:
    columns = ("name", "catalog_id", "parent", "lineage", "size", "root")
    values = ([entry[column] for column in columns] for entry in entries)
    rows = [columns, *(tuple("" if v is None else str(v) for v in row) for row in values)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(columns))]
    for row in rows:
        yield "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
