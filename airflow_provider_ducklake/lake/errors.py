"""Every error this package raises on purpose, one class for each way a caller should react.

A message says what is wrong, where, and what to do about it. Nothing here carries a secret:
whoever builds a message passes only names, paths and types.
"""

from __future__ import annotations


class LakeError(Exception):
    """Something is wrong with a lake; the message is written for the person on call."""


class ConfigurationError(LakeError):
    """The request itself is wrong (option, name, location): retrying cannot help."""


class UnsupportedCatalog(ConfigurationError):
    """The catalog is of a format version, type or feature this package does not handle."""


class NotFound(ConfigurationError):
    """A catalog file, schema, table, snapshot or column the caller names does not exist."""


class BadInput(LakeError):
    """Data handed to the lake cannot go in; the message names file, column and both types."""


class CommitConflict(LakeError):
    """Another writer changed what this commit builds on: plan again and retry."""


class LostRace(CommitConflict):
    """Another commit took the snapshot id first: the same commit may simply be tried again."""


class SnapshotTaken(CommitConflict):
    """Another commit came first, and files name the snapshot they are of: write those anew."""


class CommitStateUnknown(LakeError):
    """The database went away during COMMIT: look the commit up before anything else.

    Files written for such a commit must never be deleted by the job that wrote them.
    """


class SafetyRefusal(LakeError):
    """Going on could lose data; a person has to decide (usually with an explicit flag)."""


class DamagedLake(LakeError):
    """fsck found damage that it did not repair; the same lake gives the same answer again."""


class CatalogUnavailable(LakeError):
    """The catalog database cannot be reached or stays locked by another client."""


class StorageError(LakeError):
    """An object store or file system refused a read, write, listing or deletion."""
