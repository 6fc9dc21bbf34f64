"""What each of this package's errors means to Airflow: try again, or do not bother."""

from __future__ import annotations

from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

from airflow_provider_ducklake.lake import errors
from airflow_provider_ducklake.lake.errors import LakeError

# A second try meets the same request, the same data and the same refusal.
_FINAL = (errors.ConfigurationError, errors.BadInput, errors.SafetyRefusal, errors.DamagedLake)


def is_final(error: LakeError) -> bool:
    """Tell whether a second try would meet the same error."""
    return isinstance(error, _FINAL)


def airflow_error(error: LakeError) -> AirflowException:
    """Return the Airflow exception for an error: `AirflowFailException` where no retry can help."""
    return airflow_error_named(type(error).__name__, str(error))


def airflow_error_named(name: str, message: str) -> AirflowException:
    """Return the Airflow exception for an error that a job reported by its class name.

    Args:
        name: Name of a class in `lake.errors`; any other counts as worth a retry.
        message: Its message, already free of secrets.
    """
    kind = getattr(errors, name, None)
    final = isinstance(kind, type) and issubclass(kind, _FINAL)
    return (AirflowFailException if final else AirflowException)(f"{name}: {message}")
