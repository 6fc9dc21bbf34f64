"""`python -m airflow_provider_ducklake.spark`."""

import sys

from airflow_provider_ducklake.spark.cli import main

if __name__ == "__main__":
    sys.exit(main())
