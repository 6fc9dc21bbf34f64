"""The DAG that new snapshots wake reads each change once, however events and runs fall together."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.airflow.test_sensor import change
from tests.support.lakes import LakeFactory


class FakeVariable:
    """Airflow's variables, in memory."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def get(self, key: str, default: Any) -> Any:
        """Return a variable, or the default."""
        return self.values.get(key, default)

    def set(self, key: str, value: str) -> None:
        """Set a variable."""
        self.values[key] = value


@pytest.mark.airflow
def test_each_change_is_read_once(
    tmp_path: Path, example_dags: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = LakeFactory("sqlite", tmp_path).create()
    connection = {"conn_type": "ducklake", "extra": {"attach": lake.attach_string}}
    monkeypatch.setenv("AIRFLOW_CONN_DUCKLAKE_EWR", json.dumps(connection))
    read = example_dags["ewr_new_flights"].get_task("count_changes").python_callable
    variable = FakeVariable()
    monkeypatch.setitem(read.__globals__, "Variable", variable)

    def woken(*events: tuple[int, int]) -> Any:
        payloads = [{"first_snapshot": first, "last_snapshot": last} for first, last in events]
        extras = [SimpleNamespace(extra={"payload": payload}) for payload in payloads]
        return read(SimpleNamespace(get=lambda asset, default: extras or default))

    change(lake, "CREATE TABLE other (a INTEGER)", "CREATE TABLE flights (a INTEGER)")
    change(lake, "INSERT INTO flights FROM range(7)")
    assert woken((2, 2), (3, 3)) == {"insert": 7}
    assert variable.values == {"ewr_flights_read_up_to": "3"}
    assert woken((3, 3)) == woken() == {}
    change(lake, "DELETE FROM flights WHERE a < 2", "INSERT INTO other VALUES (1)")
    change(lake, "INSERT INTO flights FROM range(3)")
    assert woken((6, 6)) == {"insert": 3, "delete": 2}
    assert variable.values == {"ewr_flights_read_up_to": "6"}
