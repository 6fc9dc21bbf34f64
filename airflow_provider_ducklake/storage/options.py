"""Storage options: the closed set of settings for object stores, kept out of sight."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, quote_plus

from airflow_provider_ducklake.lake.errors import ConfigurationError

# Every name is one of obstore's own configuration keys, in the spelling of its cloud.
_S3 = frozenset(
    {
        "aws_access_key_id",
        "aws_checksum_algorithm",
        "aws_conditional_put",
        "aws_container_authorization_token_file",
        "aws_container_credentials_full_uri",
        "aws_container_credentials_relative_uri",
        "aws_default_region",
        "aws_disable_bulk_delete",
        "aws_disable_tagging",
        "aws_endpoint",
        "aws_endpoint_url",
        "aws_endpoint_url_s3",
        "aws_imdsv1_fallback",
        "aws_metadata_endpoint",
        "aws_region",
        "aws_request_payer",
        "aws_role_arn",
        "aws_role_session_name",
        "aws_s3_express",
        "aws_secret_access_key",
        "aws_server_side_encryption",
        "aws_session_token",
        "aws_skip_signature",
        "aws_sse_bucket_key_enabled",
        "aws_sse_customer_key_base64",
        "aws_sse_kms_key_id",
        "aws_token",
        "aws_unsigned_payload",
        "aws_virtual_hosted_style_request",
        "aws_web_identity_token_file",
    }
)
_GCS = frozenset(
    {
        "google_application_credentials",
        "google_base_url",
        "google_bearer_token",
        "google_service_account",
        "google_service_account_key",
        "google_service_account_path",
        "google_skip_signature",
    }
)
_AZURE = frozenset(
    {
        "azure_client_id",
        "azure_client_secret",
        "azure_disable_tagging",
        "azure_federated_token_file",
        "azure_msi_endpoint",
        "azure_msi_resource_id",
        "azure_object_id",
        "azure_skip_signature",
        "azure_storage_access_key",
        "azure_storage_account_key",
        "azure_storage_account_name",
        "azure_storage_authority_host",
        "azure_storage_client_id",
        "azure_storage_client_secret",
        "azure_storage_endpoint",
        "azure_storage_sas_key",
        "azure_storage_sas_token",
        "azure_storage_tenant_id",
        "azure_storage_token",
        "azure_storage_use_emulator",
        "azure_tenant_id",
        "azure_use_azure_cli",
        "azure_use_fabric_endpoint",
    }
)
_CLIENT = frozenset(
    {
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "http1_only",
        "http2_only",
        "pool_idle_timeout",
        "pool_max_idle_per_host",
        "proxy_ca_certificate",
        "proxy_excludes",
        "proxy_url",
        "read_timeout",
        "timeout",
        "user_agent",
    }
)
# `aws_allow_http` is the old spelling of `allow_http` that most tools document.
_CLIENT_ALIASES = {f"{cloud}_allow_http": "allow_http" for cloud in ("aws", "azure", "google")}
_RETRY = frozenset({"max_retries", "retry_timeout"})
_KNOWN = _S3 | _GCS | _AZURE | _CLIENT | _RETRY | _CLIENT_ALIASES.keys()
_BY_SCHEME = {"s3": _S3, "gs": _GCS, "az": _AZURE}
_SECRET = frozenset(
    {
        "aws_secret_access_key",
        "aws_session_token",
        "aws_sse_customer_key_base64",
        "aws_token",
        "azure_client_secret",
        "azure_storage_access_key",
        "azure_storage_account_key",
        "azure_storage_client_secret",
        "azure_storage_sas_key",
        "azure_storage_sas_token",
        "azure_storage_token",
        "google_bearer_token",
        "google_service_account_key",
        "proxy_url",
    }
)
_MASK = "***"
_SIGNATURE = re.compile(r"(?i)\b(sig|x-amz-[a-z-]+|x-goog-[a-z-]+)=[^&\s\"'<]+")


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class StorageOptions(Mapping[str, str]):
    """Settings and credentials for object stores, as a mapping whose repr shows no value.

    Options of all clouds may stand side by side: each store takes its own. What is not given comes
    from the cloud's usual environment variables. Names are those of obstore (`aws_region`,
    `azure_storage_account_name`, `google_service_account_key`, `allow_http`, `timeout`, …), plus
    `max_retries` (a count) and `retry_timeout` (seconds).

    Attributes:
        settings: Option name to value; names in lower case.

    Raises:
        ConfigurationError: A name is unknown; the message names the nearest known one.
    """

    settings: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        settings: dict[str, str] = {}
        for name, value in self.settings.items():
            known = name.lower()
            if known not in _KNOWN:
                raise ConfigurationError(_unknown(name))
            settings[_CLIENT_ALIASES.get(known, known)] = value
        object.__setattr__(self, "settings", settings)

    @classmethod
    def from_environment(
        cls,
        prefix: str = "DUCKLAKE_STORAGE_",
        environ: Mapping[str, str] | None = None,
    ) -> StorageOptions:
        """Collect options from environment variables such as DUCKLAKE_STORAGE_AWS_REGION.

        Args:
            prefix: What such variables start with; the rest is the option name in upper case.
            environ: The environment; that of this process by default.

        Returns:
            The options; empty values count as not given.

        Raises:
            ConfigurationError: A variable with the prefix names no known option.
        """
        source = os.environ if environ is None else environ
        return cls(
            {
                name[len(prefix) :].lower(): value
                for name, value in source.items()
                if name.startswith(prefix) and value
            }
        )

    def to_environment(self, prefix: str = "DUCKLAKE_STORAGE_") -> dict[str, str]:
        """Give the environment variables from which `from_environment` restores these options."""
        return {prefix + name.upper(): value for name, value in self.settings.items()}

    def for_scheme(self, scheme: str) -> dict[str, str]:
        """Select the configuration keys of one cloud ("s3", "gs" or "az") for obstore."""
        return {name: value for name, value in self.settings.items() if name in _BY_SCHEME[scheme]}

    def for_client(self) -> dict[str, str]:
        """Select the HTTP client settings for obstore, with the one that environments have."""
        # Given to obstore they replace what it would take from the environment itself.
        usual = {
            name: os.environ[alias.upper()]
            for alias, name in _CLIENT_ALIASES.items()
            if os.environ.get(alias.upper())
        }
        return usual | {name: value for name, value in self.settings.items() if name in _CLIENT}

    def number(self, name: str, default: float) -> float:
        """Read a numeric option.

        Args:
            name: Option name.
            default: Value when the option is not given.

        Returns:
            The number, zero or more.

        Raises:
            ConfigurationError: The value is not such a number.
        """
        text = self.settings.get(name)
        if text is None:
            return default
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not 0 <= value < float("inf"):
            raise ConfigurationError(f"storage option {name} must be a number, zero or more")
        return value

    def redact(self, text: str) -> str:
        """Mask every secret of these options, or of the cloud's environment variables, in a text.

        Args:
            text: A message of a library or server.

        Returns:
            The text with secrets, plain or URL-encoded, and URL signatures replaced by ***.
        """
        for name in _SECRET:
            for value in (self.settings.get(name), os.environ.get(name.upper())):
                if value:
                    for spelling in {value, quote(value, safe=""), quote(value), quote_plus(value)}:
                        text = text.replace(spelling, _MASK)
        return _SIGNATURE.sub(rf"\1={_MASK}", text)

    def __getitem__(self, name: str) -> str:
        return self.settings[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.settings)

    def __len__(self) -> int:
        return len(self.settings)

    def __hash__(self) -> int:
        return hash(frozenset(self.settings.items()))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={_MASK}" for name in sorted(self.settings))
        return f"StorageOptions({shown})"


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name.lower(), sorted(_KNOWN), n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"unknown storage option {name!r}{hint}"
