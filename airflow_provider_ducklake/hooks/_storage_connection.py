"""Storage options out of the Airflow connection of a cloud: `storage_conn_id`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_ducklake.hooks._values import as_object, as_setting, given
from airflow_provider_ducklake.lake.errors import ConfigurationError

if TYPE_CHECKING:
    from airflow.sdk import Connection

# Fields that would have another identity do the work, and that obstore cannot follow.
_OTHER_IDENTITY: Final = {
    "aws": ("role_arn", "profile_name", "assume_role_method"),
    "google_cloud_platform": ("key_secret_name", "credential_config_file", "impersonation_chain"),
    "wasb": ("connection_string",),
}


def storage_from_connection(connection: Connection) -> dict[str, str]:
    """Return the storage options that an `aws`, `google_cloud_platform` or `wasb` connection means.

    A connection that holds no credentials leaves them to the cloud's default chain.

    Args:
        connection: A connection as Airflow's provider of that cloud defines it.

    Raises:
        ConfigurationError: It is of another type, or asks for what obstore cannot do. The message
            never shows a value, which may be secret.
    """
    convert = {"aws": _aws, "google_cloud_platform": _google, "wasb": _azure}
    kind = str(connection.conn_type)
    try:
        if kind not in convert:
            raise ConfigurationError(f"its type is {kind!r}; there is {', '.join(convert)}")
        try:
            extra = as_object(json.loads(connection.extra or "{}"), "its extra field")
        except ValueError:
            raise ConfigurationError("its extra field is not valid JSON") from None
        # Parsing it the other way has Airflow mask what sensitive names hold.
        _ = connection.extra_dejson
        prefix = f"extra__{kind}__"
        extra = {name.removeprefix(prefix): value for name, value in extra.items() if given(value)}
        for name in _OTHER_IDENTITY[kind]:
            if name in extra:
                raise ConfigurationError(
                    f"its {name} is not supported: name a connection with keys of its own, or "
                    "leave the credentials out and give the workers the role"
                )
        found = convert[kind](connection, extra)
    except ConfigurationError as error:
        raise ConfigurationError(f"storage_conn_id {connection.conn_id!r}: {error}") from None
    return {name: as_setting(value) for name, value in found.items() if given(value)}


def _aws(connection: Connection, extra: Mapping[str, Any]) -> dict[str, Any]:
    service = as_object(extra.get("service_config", {}), "its service_config")
    of_s3 = as_object(service.get("s3", {}), "its service_config for s3")
    endpoint = of_s3.get("endpoint_url") or extra.get("endpoint_url")
    return {
        "aws_access_key_id": connection.login or extra.get("aws_access_key_id"),
        "aws_secret_access_key": connection.password or extra.get("aws_secret_access_key"),
        "aws_session_token": extra.get("aws_session_token"),
        "aws_region": extra.get("region_name"),
        "aws_endpoint": endpoint,
        "allow_http": str(endpoint).startswith("http://") or None,
        "allow_invalid_certificates": extra.get("verify") is False or None,
    }


def _google(connection: Connection, extra: Mapping[str, Any]) -> dict[str, Any]:
    key = extra.get("keyfile_dict")
    return {
        "google_service_account_path": extra.get("key_path"),
        "google_service_account_key": json.dumps(key) if isinstance(key, dict) else key,
        "google_skip_signature": extra.get("is_anonymous"),
    }


def _azure(connection: Connection, extra: Mapping[str, Any]) -> dict[str, Any]:
    host = str(connection.host or "")
    account, _, domain = host.partition("://")[2].rstrip("/").partition(".")
    if not host.startswith("http"):
        account, _, domain = host.partition(".")
    is_usual = domain in ("", "blob.core.windows.net")
    tenant = extra.get("tenant_id")
    found = {
        "azure_storage_account_name": (account if is_usual else "") or connection.login,
        "azure_storage_endpoint": None if is_usual else host.rstrip("/"),
        "azure_storage_sas_token": extra.get("sas_token"),
    }
    if tenant:
        if found["azure_storage_account_name"] == connection.login:
            raise ConfigurationError("its host must name the account, as its login is the client")
        return found | {
            "azure_storage_tenant_id": tenant,
            "azure_storage_client_id": connection.login,
            "azure_storage_client_secret": connection.password,
        }
    shared = connection.password or extra.get("shared_access_key")
    return found | {"azure_storage_account_key": shared}
