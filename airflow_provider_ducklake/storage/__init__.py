"""Object storage of a lake: local directories, S3, Google Cloud Storage and Azure, by full path."""

from airflow_provider_ducklake.storage.location import Location
from airflow_provider_ducklake.storage.objects import (
    DeleteOutcome,
    ObjectInfo,
    ObjectNotFound,
    PreconditionFailed,
    StoreUnreachable,
)
from airflow_provider_ducklake.storage.options import StorageOptions
from airflow_provider_ducklake.storage.protocol import Backend, Store
from airflow_provider_ducklake.storage.store import RoutedStore, open_store

__all__ = [
    "Backend",
    "DeleteOutcome",
    "Location",
    "ObjectInfo",
    "ObjectNotFound",
    "PreconditionFailed",
    "RoutedStore",
    "StorageOptions",
    "Store",
    "StoreUnreachable",
    "open_store",
]
