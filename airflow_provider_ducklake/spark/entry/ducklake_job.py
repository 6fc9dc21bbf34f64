"""The application file for spark-submit; it stands alone in its folder, which joins sys.path."""

import sys

from airflow_provider_ducklake.spark.cli import main

if __name__ == "__main__":
    sys.exit(main())
