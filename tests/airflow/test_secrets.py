"""No secret in any spelling: in commands, in printed lines, in messages (cases CT-03, SP-01)."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.conninfo import make_conninfo

from airflow_provider_ducklake.hooks._secrets import MASK, Redactor, is_sensitive
from tests.airflow.conftest import ODD_PASSWORD

SECRETS = st.text(
    st.characters(min_codepoint=32, max_codepoint=0x2FF, exclude_characters="\x7f"), min_size=6
)


@pytest.mark.parametrize(
    "spelled",
    [
        ODD_PASSWORD,
        quote(ODD_PASSWORD, safe=""),
        quote(ODD_PASSWORD),
        quote_plus(ODD_PASSWORD).lower(),
        make_conninfo(host="db", password=ODD_PASSWORD),
        f"postgresql://u:{quote(ODD_PASSWORD, safe='')}@db/lake",
        json.dumps({"password": ODD_PASSWORD}),
        json.dumps(json.dumps({"x": ODD_PASSWORD})),
        repr({"x": ODD_PASSWORD}),
        shlex.quote(ODD_PASSWORD),
        "spark.x " + ODD_PASSWORD.replace("\\", "\\\\"),
    ],
)
def test_every_spelling_is_masked(spelled: str) -> None:
    redact = Redactor([ODD_PASSWORD])
    shown = redact.values(f"before {spelled} after")
    assert MASK in shown
    assert shown.startswith("before ")
    assert shown.endswith(" after")
    for piece in ("p@ss", "p%40ss", "or\\d", "or%5Cd", "or%5cd", "x&%41", "x%26"):
        assert piece not in shown


@given(secret=SECRETS, data=st.data())
def test_a_secret_never_survives(secret: str, data: st.DataObject) -> None:
    ways: list[Callable[[str], str]] = [
        str,
        repr,
        json.dumps,
        quote,
        quote_plus,
        shlex.quote,
        lambda text: make_conninfo(host="db", password=text),
        lambda text: json.dumps(json.dumps(text)),
    ]
    spelled = data.draw(st.sampled_from(ways))(secret)
    assert secret not in Redactor([secret])(f"connect {spelled} now") or secret in "connect  now"


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["--db.password=x y"], "--db.password=***"),
        (["--db.password", "x", "--verbose"], "--db.password *** --verbose"),
        (
            ["--conf", "spark.hadoop.fs.s3a.secret.key=x"],
            "--conf spark.hadoop.fs.s3a.secret.key=***",
        ),
        (["--conf", "spark.x.auth-token=x"], "--conf spark.x.auth-token=***"),
        (["--url", "postgresql://u:x@h/d"], "--url postgresql://u:***@h/d"),
        (["--attach", "ducklake:postgres:host=h password='x y'"], "password=***"),
        (["--extra", '{"aws_secret_access_key": "x"}'], '{"aws_secret_access_key": ***}'),
        (["--conf", "spark.executor.memory=1g"], "--conf spark.executor.memory=1g"),
        (["--conf", "spark.kubernetes.driver.secretKeyRef.A=b:c"], "secretKeyRef.A=b:c"),
        (["--option", "aws_access_key_id=AKIA"], "aws_access_key_id=AKIA"),
    ],
)
def test_a_command_shows_its_keys_and_no_value_named_like_a_secret(
    arguments: list[str], shown: str
) -> None:
    assert Redactor().command(arguments).endswith(shown)


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ('ERROR password authentication failed for user "u"', None),
        ("conf: password = hunter22, user = u", "conf: password = ***, user = u"),
        ("token: abcdefg", "token: ***"),
        ("libpq password='it\\'s x' host=h", "libpq password=*** host=h"),
        ("26/11/27 INFO SparkContext: Running Spark version 4.2.0", None),
        ("jdbc:postgresql://u:pa:ss@h:5432/d", "jdbc:postgresql://u:***@h:5432/d"),
    ],
)
def test_a_line_stays_readable(line: str, shown: str | None) -> None:
    assert Redactor()(line) == (shown or line)


def test_short_values_are_not_masked_everywhere() -> None:
    assert Redactor(["a", None, ""])("a banana") == "a banana"


def test_masking_is_linear() -> None:
    """A classpath of a megabyte is no reason to stall the worker."""
    import time

    started = time.process_time()
    Redactor([ODD_PASSWORD])("/opt/spark/jars/secret-x.jar:" * 40_000)
    assert time.process_time() - started < 5


@pytest.mark.parametrize(
    "name", ["Password", "AWS_SECRET_ACCESS_KEY", "sas_token", "azure.account.key"]
)
def test_names_of_secrets(name: str) -> None:
    assert is_sensitive(name)


@pytest.mark.parametrize(
    "name", ["user", "aws_access_key_id", "spark.driver.secretKeyRef.X", "keys"]
)
def test_names_of_other_things(name: str) -> None:
    assert not is_sensitive(name)
