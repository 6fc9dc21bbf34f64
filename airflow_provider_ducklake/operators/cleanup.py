"""Operators that delete files: those a lake has retired, and those it does not know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, ClassVar

from airflow_provider_ducklake.operators import _options
from airflow_provider_ducklake.operators.base import DuckLakeSparkOperator


class DuckLakeCleanupOldFilesOperator(DuckLakeSparkOperator):
    """Delete files that are scheduled for deletion and that no kept snapshot reaches.

    Args:
        older_than: Only files scheduled before this instant or age ago; two days when not given.
        cleanup_all: All scheduled files, however young; needs `force`.
        force: Allow what goes below the safe age.
        outside_data_path: Delete registered files that lie outside the lake's data path too;
            otherwise the catalog forgets them and the objects stay.
        max_seconds: After so many seconds (or a timedelta) nothing more is begun; files stay
            scheduled for the next run.
        **kwargs: See `DuckLakeSparkOperator`.
    """

    operation = "cleanup_old_files"
    options: ClassVar[Mapping[str, _options.Converter]] = {
        "older_than": _options.instant,
        "cleanup_all": _options.boolean,
        "force": _options.boolean,
        "outside_data_path": _options.boolean,
        "max_seconds": _options.seconds,
    }
    template_fields: Sequence[str] = (*DuckLakeSparkOperator.template_fields, *options)

    def __init__(
        self,
        *,
        older_than: datetime | timedelta | str | None = None,
        cleanup_all: bool | str | None = None,
        force: bool | str | None = None,
        outside_data_path: bool | str | None = None,
        max_seconds: float | str | timedelta | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.older_than = older_than
        self.cleanup_all = cleanup_all
        self.force = force
        self.outside_data_path = outside_data_path
        self.max_seconds = max_seconds


class DuckLakeDeleteOrphanedFilesOperator(DuckLakeSparkOperator):
    """Delete data files under the lake's root that no catalog entry refers to.

    Args:
        older_than: Only files last modified before this instant or age ago; two days when not
            given, since a younger one may belong to a commit still to come.
        cleanup_all: All of them, however young; needs `force`.
        force: Allow what goes below the safe age.
        max_fraction: Refuse when more than this share of the files (0 to 1) would go.
        quarantine: Folder or bucket outside the data path to which they are moved, into a folder
            of the run's time, instead of being deleted.
        max_seconds: After so many seconds (or a timedelta) nothing more is begun; orphans stay
            for the next run.
        **kwargs: See `DuckLakeSparkOperator`.
    """

    operation = "delete_orphaned_files"
    options: ClassVar[Mapping[str, _options.Converter]] = {
        "older_than": _options.instant,
        "cleanup_all": _options.boolean,
        "force": _options.boolean,
        "max_fraction": _options.fraction,
        "quarantine": _options.text,
        "max_seconds": _options.seconds,
    }
    template_fields: Sequence[str] = (*DuckLakeSparkOperator.template_fields, *options)

    def __init__(
        self,
        *,
        older_than: datetime | timedelta | str | None = None,
        cleanup_all: bool | str | None = None,
        force: bool | str | None = None,
        max_fraction: float | str | None = None,
        quarantine: str | None = None,
        max_seconds: float | str | timedelta | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.older_than = older_than
        self.cleanup_all = cleanup_all
        self.force = force
        self.max_fraction = max_fraction
        self.quarantine = quarantine
        self.max_seconds = max_seconds
