"""Masking of secrets in every spelling they take on command lines, in logs and in messages."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Final
from urllib.parse import quote, quote_plus

MASK: Final = "***"
# Shorter values are no secrets worth the name, and masking them would garble every line.
_SHORTEST: Final = 3
_WORDS: Final = (
    r"(?:passw(?:or)?d|passphrase|passwd|secret|token|credential|"
    r"(?:access|account|private|customer|sas|api)[._-]?key)"
)
_SENSITIVE: Final = re.compile(_WORDS, re.IGNORECASE)
# Names that contain such a word and hold no secret.
_HARMLESS: Final = re.compile(r"(?:key[._-]?id|secretkeyref|token[._-]?file)", re.IGNORECASE)
# Bounded repeats keep the search linear on whatever a Spark application prints.
_KEYED: Final = re.compile(
    rf"({_WORDS}[\w.\-]{{0,64}}[\"']?\s{{0,3}}[=:]\s{{0,3}})"
    r"('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[^\s,;&\"']+)",
    re.IGNORECASE,
)
_USER_INFO: Final = re.compile(r"(://[^\s/:@]{0,256}:)[^\s@/]{1,256}(?=@)")
_KEY_LIKE: Final = re.compile(r"^[\w./:\[\]-]+$")
_PERCENT: Final = re.compile(r"%[0-9A-F]{2}")


def is_sensitive(name: str) -> bool:
    """Tell from its name whether a setting, flag or variable holds a secret."""
    return bool(_SENSITIVE.search(name)) and not _HARMLESS.search(name)


def spellings(secret: str) -> frozenset[str]:
    """Return every form in which software is known to write a secret into text.

    Plain; URL-encoded in full, in part, with `+`, in either case of the hex digits; quoted for
    libpq, SQL, JSON, JSON in JSON, Python, a shell, and a Java properties file.
    """
    encoded = {quote(secret, safe=""), quote(secret), quote_plus(secret)}
    in_json = json.dumps(secret)[1:-1]
    return frozenset(
        {
            secret,
            *encoded,
            *(_PERCENT.sub(lambda found: found[0].lower(), text) for text in encoded),
            secret.replace("\\", "\\\\").replace("'", "\\'"),
            secret.replace("\\", "\\\\"),
            secret.replace("'", "''"),
            secret.replace("'", "'\"'\"'"),
            in_json,
            json.dumps(in_json)[1:-1],
            repr(secret)[1:-1],
        }
    )


class Redactor:
    """Replaces known secrets, and what is named like one, by `***`."""

    def __init__(self, secrets: Iterable[str | None] = ()) -> None:
        """Remember secrets.

        Args:
            secrets: Values; None and what is shorter than three characters is left out.
        """
        known = {secret for secret in secrets if secret and len(secret) >= _SHORTEST}
        forms = sorted({form for secret in known for form in spellings(secret)}, key=len)
        alternatives = "|".join(re.escape(form) for form in reversed(forms))
        self._known = re.compile(alternatives) if forms else None

    def values(self, text: str) -> str:
        """Mask the remembered secrets only."""
        return self._known.sub(MASK, text) if self._known else text

    def __call__(self, text: str) -> str:
        """Mask the remembered secrets, `password=…` and its like, and passwords in URLs."""
        text = self.values(text)
        text = _USER_INFO.sub(rf"\g<1>{MASK}", text)
        return _KEYED.sub(_masked, text)

    def command(self, arguments: Sequence[str]) -> str:
        """Return a command line fit for a log: every flag and key is shown, no secret is.

        Args:
            arguments: The command as it is executed, one entry an argument.
        """
        shown: list[str] = []
        flag = ""
        for argument in arguments:
            name, equals, _ = argument.partition("=")
            if is_sensitive(flag):
                shown.append(MASK)
            elif equals and _KEY_LIKE.match(name) and is_sensitive(name):
                shown.append(f"{name}={MASK}")
            else:
                shown.append(self(argument))
            flag = argument if argument.startswith("-") and not equals else ""
        return " ".join(shown)


def _masked(found: re.Match[str]) -> str:
    if _HARMLESS.search(found[1]):
        return found[0]
    return found[1] + MASK
