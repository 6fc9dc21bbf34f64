"""The properties file: private, kept on top of Spark's defaults, every value as it was."""

from __future__ import annotations

import re
import stat
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from airflow_provider_ducklake.hooks._properties import find_spark_defaults, write_properties
from airflow_provider_ducklake.lake.errors import ConfigurationError
from tests.airflow.conftest import ODD_PASSWORD


def load(path: Path) -> dict[str, str]:
    """Read a file as java.util.Properties does, as far as simple lines go."""
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if match := re.match(r"\s*([^\s=:#!]+)\s*[=:]?\s*(.*)$", line):
            found[match[1]] = re.sub(r"\\(.)", r"\1", match[2])
    return found


def test_only_the_owner_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "p"
    write_properties(path, {"spark.ducklake.catalog.password": ODD_PASSWORD})
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert load(path) == {"spark.ducklake.catalog.password": ODD_PASSWORD}


def test_what_another_file_sets_is_kept_below(tmp_path: Path) -> None:
    base = tmp_path / "spark-defaults.conf"
    base.write_text("# ours\nspark.eventLog.enabled   true\nspark.a=1")
    write_properties(tmp_path / "p", {"spark.a": "2"}, base=base)
    assert load(tmp_path / "p") == {"spark.eventLog.enabled": "true", "spark.a": "2"}


PRINTABLE = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1)


@example(value=":")
@example(value="=a")
@given(value=st.lists(PRINTABLE, min_size=1).map(" ".join))
def test_any_printable_value_comes_through(
    value: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("properties") / "p"
    write_properties(path, {"spark.x": value})
    assert load(path) == {"spark.x": value}


@pytest.mark.parametrize("value", [" x", "x ", "x\ny", "x\0"])
def test_what_it_cannot_carry_is_refused(tmp_path: Path, value: str) -> None:
    with pytest.raises(ConfigurationError, match=r"spark\.x: .* secrets_mode='env'") as raised:
        write_properties(tmp_path / "p", {"spark.x": value})
    assert not (tmp_path / "p").exists()
    assert value not in str(raised.value).replace("spark.x", "")


def test_a_base_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        write_properties(tmp_path / "p", {}, base=tmp_path / "missing")


def test_defaults_are_found_where_spark_looks(tmp_path: Path) -> None:
    conf, home = tmp_path / "conf.d", tmp_path / "spark"
    for directory in (conf, home / "conf", home / "bin"):
        directory.mkdir(parents=True)
    defaults = home / "conf" / "spark-defaults.conf"
    defaults.touch()
    (home / "bin" / "load-spark-env.sh").touch()
    binary = home / "bin" / "spark-submit"
    binary.touch(mode=0o755)
    path = {"PATH": str(home / "bin")}
    assert find_spark_defaults("spark-submit", path) == defaults
    assert find_spark_defaults("spark-submit", {"SPARK_HOME": str(home)}) == defaults
    assert find_spark_defaults("spark-submit", {"SPARK_CONF_DIR": str(conf), **path}) is None
    link = tmp_path / "spark-submit"
    link.symlink_to(binary)
    assert find_spark_defaults("spark-submit", {"PATH": str(tmp_path)}) == defaults
