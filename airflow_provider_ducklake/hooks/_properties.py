"""Spark properties in a file only its owner can read: how secrets reach a driver elsewhere."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from airflow_provider_ducklake.lake.errors import ConfigurationError

_DEFAULTS = "spark-defaults.conf"


def write_properties(
    path: Path, properties: Mapping[str, str], *, base: Path | None = None
) -> None:
    """Write a properties file of mode 0600 that keeps what another one sets.

    Args:
        path: File to create; nothing may be there.
        properties: Names and values, which win over those of `base`.
        base: A properties file to begin with, since spark-submit reads only one.

    Raises:
        ConfigurationError: A value cannot be carried by such a file, or `base` cannot be read.
    """
    lines = []
    if base is not None:
        try:
            lines.append(base.read_text(encoding="utf-8"))
        except (OSError, UnicodeError) as error:
            raise ConfigurationError(
                f"the Spark properties file {base} cannot be read: {type(error).__name__}"
            ) from None
    # With a space for the sign, a value's own first "=" or ":" would be taken for it.
    lines += [f"{name}={_escaped(name, value)}" for name, value in properties.items()]
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write("\n".join([*lines, ""]))


def find_spark_defaults(binary: str, environment: Mapping[str, str]) -> Path | None:
    """Return the spark-defaults.conf that spark-submit itself would read, if there is one.

    Args:
        binary: spark-submit's name or path.
        environment: What spark-submit will run with.

    Source: bin/load-spark-env.sh and bin/find-spark-home of Apache Spark.
    """
    if directory := environment.get("SPARK_CONF_DIR"):
        return _existing(Path(directory))
    if home := environment.get("SPARK_HOME"):
        return _existing(Path(home, "conf"))
    found = shutil.which(binary, path=environment.get("PATH"))
    if found:
        home_of_binary = Path(found).resolve().parent.parent
        if (home_of_binary / "bin" / "load-spark-env.sh").is_file():
            return _existing(home_of_binary / "conf")
    # Installed by pip: the script lies in the environment's bin, Spark itself inside pyspark.
    spec = importlib.util.find_spec("pyspark")
    places = spec.submodule_search_locations if spec else None
    return _existing(Path(next(iter(places)), "conf")) if places else None


def _existing(directory: Path) -> Path | None:
    path = directory / _DEFAULTS
    return path if path.is_file() else None


def _escaped(name: str, value: str) -> str:
    if value != value.strip() or not value.isprintable():
        raise ConfigurationError(
            f"{name}: Spark's properties cannot carry a value that begins or ends with a space or "
            "holds control characters; use secrets_mode='env'"
        )
    return value.replace("\\", "\\\\")
