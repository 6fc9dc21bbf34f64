"""The form of a `ducklake` connection as data: one definition for provider info and hook."""

from __future__ import annotations

from typing import Any

_TEXT = {"type": ["string", "null"]}
_OBJECT = {"type": ["object", "null"]}


def conn_fields() -> dict[str, dict[str, Any]]:
    """Return the fields kept in the connection's extra, each with label, help and JSON schema."""
    return {
        "catalog_type": {
            "label": "Catalog type",
            "description": "Which database holds the catalog",
            "schema": {
                "type": ["string", "null"],
                "enum": ["postgres", "sqlite", "duckdb", "motherduck"],
                "default": "postgres",
            },
        },
        "path": {
            "label": "Catalog file",
            "description": "Path of a SQLite or DuckDB catalog; the other fields above stay empty",
            "schema": _TEXT,
        },
        "catalog_url": {
            "label": "Catalog in a bucket",
            "description": "URL of a SQLite catalog that jobs fetch, work on and put back",
            "schema": _TEXT,
        },
        "data_path": {
            "label": "Data path",
            "description": "Where the Parquet files are; empty takes the catalog's own word",
            "schema": _TEXT,
        },
        "metadata_schema": {
            "label": "Metadata schema",
            "description": "Schema of the metadata tables in the catalog database",
            "schema": _TEXT,
        },
        "catalog": {
            "label": "Catalog of the store",
            "description": "Where PostgreSQL holds a shared store: the catalog's name in it",
            "schema": _TEXT,
        },
        "read_only": {
            "label": "Read only",
            "description": "Refuse everything that would change the lake",
            "schema": {"type": ["boolean", "null"], "default": False},
        },
        "attach": {
            "label": "ATTACH string",
            "description": "Instead of the fields above, without the password: ducklake:postgres:…",
            "schema": _TEXT,
        },
        "libpq_options": {
            "label": "libpq options",
            "description": 'For PostgreSQL, such as {"sslmode": "require"}',
            "schema": _OBJECT,
        },
        "storage_options": {
            "label": "Storage options",
            "description": (
                "How the data is reached, in obstore's names: "
                '{"aws_access_key_id": "…", "aws_secret_access_key": "…", "aws_region": "…"}'
            ),
            # An object: Airflow hides its entries by their names wherever a connection is shown.
            "schema": _OBJECT,
        },
        "storage_conn_id": {
            "label": "Storage connection",
            "description": (
                "Connection of type aws, google_cloud_platform or wasb that holds the credentials "
                "of the data's storage; storage options add to it"
            ),
            "schema": _TEXT,
        },
        "attach_options": {
            "label": "ATTACH options",
            "description": (
                "Of sessions opened by get_conn(), such as "
                '{"snapshot_version": 42} or {"data_inlining_row_limit": 0}'
            ),
            "schema": _OBJECT,
        },
        "secret": {
            "label": "DuckLake secret",
            "description": "Name under which get_conn() keeps all this as a secret of its session",
            "schema": _TEXT,
        },
        "duckdb_settings": {
            "label": "DuckDB settings",
            "description": 'Of sessions opened by get_conn(), such as {"memory_limit": "2GB"}',
            "schema": _OBJECT,
        },
    }


def ui_field_behaviour() -> dict[str, Any]:
    """Return labels and placeholders of the standard fields, keyed as provider info wants them."""
    return {
        "hidden-fields": [],
        "relabeling": {
            "host": "Catalog host",
            "login": "Catalog user",
            "password": "Catalog password",
            "schema": "Catalog database",
        },
        "placeholders": {
            "host": "db.example.com",
            "port": "5432",
            "schema": "lake",
            "path": "/lake/catalog.sqlite",
            "catalog": "acme",
            "catalog_url": "s3://bucket/lake/catalog.sqlite",
            "data_path": "s3://bucket/lake/",
        },
    }


def form_widgets(fields: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the fields as WTForms widgets, which Airflow before 3.2 asks a hook class for."""
    from flask_appbuilder.fieldwidgets import BS3TextFieldWidget
    from wtforms import BooleanField, StringField

    widgets: dict[str, Any] = {}
    for name, definition in fields.items():
        schema = definition["schema"]
        label, text = definition["label"], definition["description"]
        if "boolean" in schema["type"]:
            widgets[name] = BooleanField(label, description=text, default=schema.get("default"))
        else:
            widgets[name] = StringField(
                label,
                widget=BS3TextFieldWidget(),
                description=text,
                default=schema.get("default"),
            )
    return widgets
