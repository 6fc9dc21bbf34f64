"""Password and storage settings on their way from the application to the driver's workers.

Spark calls a data source in Python processes of its own, which see neither the application's
environment as it is now nor Spark's configuration.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from airflow_provider_ducklake.lake.errors import ConfigurationError
from airflow_provider_ducklake.lake.location import PASSWORD_VARIABLE
from airflow_provider_ducklake.storage import StorageOptions

STORAGE_PREFIX: Final = "DUCKLAKE_STORAGE_"
CONF_PASSWORD: Final = "spark.ducklake.catalog.password"
CONF_STORAGE: Final = "spark.ducklake.storage."


@dataclass(frozen=True, slots=True)
class Secrets:
    """What opens a lake besides its options.

    Attributes:
        password: Of the catalog's database.
        storage: How data files are reached.
    """

    password: str | None = field(default=None, repr=False)
    storage: StorageOptions = field(default_factory=StorageOptions)


def collect(conf: Mapping[str, str]) -> Secrets:
    """Return what environment and Spark's configuration say; the environment goes first.

    Raises:
        ConfigurationError: A storage setting is unknown.
    """
    of_conf = {
        name[len(CONF_STORAGE) :]: value
        for name, value in conf.items()
        if name.startswith(CONF_STORAGE)
    }
    of_environment = dict(StorageOptions.from_environment(STORAGE_PREFIX))
    password = os.environ.get(PASSWORD_VARIABLE) or conf.get(CONF_PASSWORD)
    return Secrets(password, StorageOptions({**of_conf, **of_environment}))


def hand_over(conf: Mapping[str, str]) -> str | None:
    """Write what `collect` finds to a file for this user alone; return its path, None for nothing.

    The file is removed when this process ends.
    """
    secrets = collect(conf)
    if secrets.password is None and not secrets.storage:
        return None
    directory = tempfile.mkdtemp(prefix="ducklake-source-")  # of mode 0700
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    path = os.path.join(directory, "secrets.json")
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump({"password": secrets.password, "storage": dict(secrets.storage)}, file)
    return path


def receive(path: str | None) -> Secrets:
    """Return what was handed over, or what this process's own environment says.

    Raises:
        ConfigurationError: The file is gone: the application that registered the source has ended.
    """
    if path is None:
        return collect({})
    try:
        found = json.loads(Path(path).read_text())
    except OSError:
        raise ConfigurationError(
            "the credentials handed over by register() are gone: call it again in this application"
        ) from None
    return Secrets(found["password"], StorageOptions(found["storage"]))
