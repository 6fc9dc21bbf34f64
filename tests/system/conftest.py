"""The DAGs of the DAGs folder, parsed once."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from scripts.demo_support.airflow_versions import dag_bag

DAGS: Final = Path(__file__).resolve().parents[2] / "dags"


@pytest.fixture(scope="session")
def example_dags() -> dict[str, Any]:
    """The example DAGs by id."""
    bag = dag_bag(str(DAGS))
    assert bag.import_errors == {}
    return dict(bag.dags)
