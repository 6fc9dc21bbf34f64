"""The operator that looks for damage, and mends what is provably safe to mend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from airflow_provider_ducklake.hooks._values import as_bool, given
from airflow_provider_ducklake.operators import _options
from airflow_provider_ducklake.operators._tables import DuckLakeTablesOperator


class DuckLakeFsckOperator(DuckLakeTablesOperator):
    """Check a lake's catalog, objects and, if asked to, footers; fail when errors are left.

    The catalog is always checked as a whole; `table` and `tables` restrict the look at objects and
    footers. The task's XCom names each class of damage with its number; `report_file` receives the
    single findings, one JSON object a line.

    Args:
        objects: Look whether every object is there and of the right size; true when not given.
        deep: Read the footers of live data files too.
        repair: Mend what is provably safe; with `dry_run` only say what that would be.
        max_examples: Findings of one class that are told one by one; 20 when not given.
        **kwargs: `table`, `tables`, and see `DuckLakeSparkOperator`.
    """

    operation = "fsck"
    options: ClassVar[Mapping[str, _options.Converter]] = {
        "objects": _options.boolean,
        "deep": _options.boolean,
        "repair": _options.boolean,
        "max_examples": _options.integer,
    }
    template_fields: Sequence[str] = (*DuckLakeTablesOperator.template_fields, *options)

    def __init__(
        self,
        *,
        objects: bool | str | None = None,
        deep: bool | str | None = None,
        repair: bool | str | None = None,
        max_examples: int | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.objects = objects
        self.deep = deep
        self.repair = repair
        self.max_examples = max_examples

    def only_reads(self) -> bool:
        """Return whether the lake stays as it is: always, unless something is to be repaired."""
        return super().only_reads() or not (given(self.repair) and as_bool(self.repair, "repair"))
