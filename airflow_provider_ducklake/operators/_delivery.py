"""How a job's secrets reach its driver without ever standing on a command line."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_ducklake.hooks._properties import find_spark_defaults, write_properties
from airflow_provider_ducklake.lake.errors import ConfigurationError

if TYPE_CHECKING:
    from airflow_provider_ducklake.hooks.spark_submit import DuckLakeSparkSubmitHook

SECRETS_MODES: Final = ("env", "properties", "none")
_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class JobSecrets:
    """What a job needs to know and nobody may see: the password, and all storage options."""

    password: str | None = field(default=None, repr=False)
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables the job reads."""
        # Not at the top: it brings a database driver, which no DAG file needs while it is parsed.
        from airflow_provider_ducklake.lake.location import PASSWORD_VARIABLE

        variables = {f"DUCKLAKE_STORAGE_{n.upper()}": value for n, value in self.storage.items()}
        if self.password:
            variables[PASSWORD_VARIABLE] = self.password
        return variables

    @property
    def properties(self) -> dict[str, str]:
        """The Spark properties the job reads; Spark's UI hides them by their names."""
        named = {f"spark.ducklake.storage.{name}": value for name, value in self.storage.items()}
        if self.password:
            named["spark.ducklake.catalog.password"] = self.password
        return named


def deliver(
    mode: str,
    hook: DuckLakeSparkSubmitHook,
    secrets: JobSecrets,
    directory: Path,
    properties_file: str | None,
) -> dict[str, Any]:
    """Return the arguments of the submitting hook that bring the secrets to the driver.

    Args:
        mode: `env`, `properties` or `none`.
        hook: Knows master and deploy mode.
        secrets: What to deliver.
        directory: Private directory of this try, for a properties file.
        properties_file: The author's own properties file, if any.

    Raises:
        ConfigurationError: The mode is unknown, or cannot work where the driver will run.
    """
    if mode not in SECRETS_MODES:
        raise ConfigurationError(f"secrets_mode {mode!r}: it is one of {', '.join(SECRETS_MODES)}")
    if hook.deploy_mode == "cluster" and hook.master.startswith("spark://"):
        raise ConfigurationError(
            "Spark runs no Python application in cluster mode on a standalone cluster: use "
            "deploy_mode='client'"
        )
    if mode == "none" or not (secrets.password or secrets.storage):
        return {}
    if mode == "env":
        if hook.deploy_mode == "cluster":
            raise ConfigurationError(
                "in cluster mode the driver does not see this worker's environment: use "
                "secrets_mode='properties', or 'none' when the deployment brings the secrets"
            )
        return {"job_environment": secrets.environment}
    if hook.master.startswith("k8s://"):
        _log.warning(
            "secrets_mode='properties' puts the secrets into a ConfigMap on Kubernetes: prefer "
            "spark.kubernetes.driver.secretKeyRef.* with secrets_mode='none'"
        )
    base = Path(properties_file) if properties_file else None
    if base is None:
        base = find_spark_defaults(str(hook.spark_binary), hook.process_environment)
    path = directory / "spark.properties"
    write_properties(path, secrets.properties, base=base)
    return {"properties_file": str(path)}
