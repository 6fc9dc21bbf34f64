"""One store for paths in several places."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from airflow_provider_ducklake.lake.errors import BadInput, ConfigurationError
from airflow_provider_ducklake.storage import Location, RoutedStore, Store, open_store
from tests.support.s3 import S3Server, options_for


def test_paths_go_where_they_point(
    s3_store: RoutedStore, s3_server: S3Server, tmp_path: Path
) -> None:
    store: Store = s3_store
    local, remote = f"{tmp_path}/f", f"{s3_server.url}/f"
    store.write(local, b"1")
    store.write(remote, b"2")
    assert (tmp_path / "f").read_bytes() == b"1"
    assert store.read(remote) == b"2"
    outcome = store.delete([local, "r2://b/x", remote, "", f"{tmp_path}/none"])
    assert set(outcome.deleted) == {local, remote}
    assert outcome.missing == (f"{tmp_path}/none",)
    assert [path for path, _ in outcome.failed] == ["r2://b/x", ""]


def test_root_may_be_a_location_and_options_a_mapping(s3_server: S3Server) -> None:
    store = open_store(Location.parse(s3_server.url), dict(options_for(s3_server)))
    store.write(f"{s3_server.url}/f", b"1")
    assert store.root == f"{s3_server.url}/"
    assert [info.size for info in store.list(store.root)] == [1]


def test_bad_roots_are_refused_at_once() -> None:
    with pytest.raises(ConfigurationError, match="'r2' is not supported"):
        open_store("r2://b/x")
    with pytest.raises(BadInput):
        open_store("")


def test_azure_account_comes_from_the_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    full = Location.parse("abfss://c@acc.dfs.core.windows.net/x")
    named = open_store("az://c/lake", {"azure_storage_account_name": "acc"})
    assert named.locate("az://c/x") == full
    assert open_store("az://c/lake").locate("az://c/x") != full
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "acc")
    assert open_store("az://c/lake").locate("az://c/x") == full


def test_local_lakes_do_not_load_obstore(tmp_path: Path) -> None:
    code = (
        "import sys; from airflow_provider_ducklake.storage import open_store;"
        f"open_store({str(tmp_path)!r}).ensure_writable({str(tmp_path)!r});"
        "print('obstore' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
