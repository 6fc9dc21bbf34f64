"""`python -m airflow_provider_ducklake.lake.store VERB`: the store from the command line."""

from __future__ import annotations

import sys

from airflow_provider_ducklake.lake.store.cli import main

if __name__ == "__main__":
    sys.exit(main())
