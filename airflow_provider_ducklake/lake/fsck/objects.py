"""Looking for the objects of a table in its storage: listed first, then one by one."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_provider_ducklake.lake.fsck.findings import Finding
from airflow_provider_ducklake.lake.fsck.stored import StoredFile
from airflow_provider_ducklake.storage import ObjectNotFound, Store


@dataclass(frozen=True, slots=True)
class ObjectTask:
    """Files of one table to look for; the directory is listed, what lies elsewhere is asked for."""

    directory: str
    files: tuple[StoredFile, ...]


@dataclass(frozen=True, slots=True)
class Suspect:
    """A file whose object is not as the catalog says; true when the file is still in use."""

    file: StoredFile
    finding: Finding


def look_for(store: Store, task: ObjectTask) -> tuple[Suspect, ...]:
    """Return the files whose object is missing or of another size.

    Raises:
        StorageError: A listing or a look-up failed, so that nothing can be said of any file.
    """
    wanted = {store.locate(file.path).real(): file for file in task.files}
    sizes = {}
    for item in store.list(task.directory):
        location = item.location.real()
        if location in wanted:
            sizes[location] = item.size
    suspects = []
    for location, file in wanted.items():
        size = sizes.get(location)
        if size != file.size:
            # What was written after the listing passed by is there all the same.
            size = _size(store, file.path)
        if size != file.size:
            suspects.append(Suspect(file, _finding(file, size)))
    return tuple(suspects)


def _size(store: Store, path: str) -> int | None:
    try:
        return store.size(path)
    except ObjectNotFound:
        return None


def _finding(file: StoredFile, size: int | None) -> Finding:
    what = f"{file.kind.replace('_', ' ')} {file.file_id} ({file.path})"
    if size is None:
        return Finding("missing_object", f"{what} is gone", file.table_id, (file.file_id,))
    message = f"{what} has {size} bytes, the catalog says {file.size}"
    return Finding("object_size", message, file.table_id, (file.file_id,))
