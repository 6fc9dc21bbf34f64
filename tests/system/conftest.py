"""The DAGs of the DAGs folder, parsed once."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

DAGS: Final = Path(__file__).resolve().parents[2] / "dags"


@pytest.fixture(scope="session")
def example_dags() -> dict[str, Any]:
    """The example DAGs by id."""
    from airflow.dag_processing.dagbag import DagBag

    bag = DagBag(str(DAGS))
    assert bag.import_errors == {}
    return dict(bag.dags)
