"""Storage options: a closed set, and no secret in sight."""

from __future__ import annotations

import pickle

import pytest

from airflow_provider_ducklake.lake.errors import ConfigurationError
from airflow_provider_ducklake.storage import StorageOptions, open_store

SECRET = "s3cr/t+x y"


def test_options_are_a_mapping() -> None:
    options = StorageOptions({"AWS_Region": "eu-central-1", "timeout": "3s"})
    assert dict(options) == {"aws_region": "eu-central-1", "timeout": "3s"}
    assert options == {"aws_region": "eu-central-1", "timeout": "3s"}
    assert len(options) == 2
    assert hash(options) == hash(StorageOptions(dict(options)))
    assert pickle.loads(pickle.dumps(options)) == options


def test_options_do_not_follow_the_mapping_they_came_from() -> None:
    source = {"aws_region": "a"}
    options = StorageOptions(source)
    source["aws_region"] = "b"
    assert options["aws_region"] == "a"


def test_no_value_is_shown() -> None:
    options = StorageOptions({"aws_secret_access_key": SECRET, "aws_region": "nowhere-1"})
    for text in (repr(options), str(options), f"{options}", repr(open_store("s3://b", options))):
        assert SECRET not in text
        assert "nowhere-1" not in text
        assert "aws_region=***" in text


def test_unknown_option_names_the_nearest() -> None:
    with pytest.raises(ConfigurationError, match="did you mean 'aws_secret_access_key'") as caught:
        StorageOptions({"secret_access_key": SECRET})
    assert SECRET not in str(caught.value)
    with pytest.raises(ConfigurationError, match=r"unknown storage option 'zzz'$"):
        StorageOptions({"zzz": "1"})


def test_environment_round_trip() -> None:
    environ = {
        "DUCKLAKE_STORAGE_AWS_SECRET_ACCESS_KEY": SECRET,
        "DUCKLAKE_STORAGE_AWS_ALLOW_HTTP": "true",
        "DUCKLAKE_STORAGE_AWS_REGION": "",
        "AWS_REGION": "eu-west-1",
    }
    options = StorageOptions.from_environment(environ=environ)
    assert dict(options) == {"aws_secret_access_key": SECRET, "allow_http": "true"}
    again = StorageOptions.from_environment("X_", options.to_environment("X_"))
    assert again == options


def test_process_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUCKLAKE_STORAGE_TIMEOUT", "9s")
    assert StorageOptions.from_environment()["timeout"] == "9s"
    monkeypatch.setenv("DUCKLAKE_STORAGE_TIMEOUTS", "9s")
    with pytest.raises(ConfigurationError, match="did you mean 'timeout'"):
        StorageOptions.from_environment()


def test_each_cloud_gets_its_own_options() -> None:
    options = StorageOptions(
        {
            "aws_region": "r",
            "google_bearer_token": "t",
            "azure_storage_account_name": "a",
            "azure_allow_http": "true",
            "max_retries": "3",
        }
    )
    assert options.for_scheme("s3") == {"aws_region": "r"}
    assert options.for_scheme("gs") == {"google_bearer_token": "t"}
    assert options.for_scheme("az") == {"azure_storage_account_name": "a"}
    assert options.for_client() == {"allow_http": "true"}


def test_numbers() -> None:
    assert StorageOptions().number("max_retries", 7) == 7
    assert StorageOptions({"max_retries": "3"}).number("max_retries", 7) == 3
    for text in ("three", "-1", "nan", "inf"):
        with pytest.raises(ConfigurationError, match="max_retries must be a number"):
            StorageOptions({"max_retries": text}).number("max_retries", 7)


@pytest.mark.parametrize(
    "spelling", [SECRET, "s3cr%2Ft%2Bx%20y", "s3cr/t%2Bx%20y", "s3cr%2Ft%2Bx+y"]
)
def test_redaction_knows_url_encoded_forms(spelling: str) -> None:
    options = StorageOptions({"aws_secret_access_key": SECRET})
    assert options.redact(f"no: <{spelling}>") == "no: <***>"


def test_redaction_covers_environment_and_signatures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "from-env")
    text = StorageOptions().redact("GET x?sv=1&sig=abc%2F&se=2 from-env X-Amz-Signature=00ff")
    assert text == "GET x?sv=1&sig=***&se=2 *** X-Amz-Signature=***"
