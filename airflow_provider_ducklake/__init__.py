"""Run a DuckLake lakehouse from Apache Airflow, with Spark doing the data work."""

__version__ = "0.1.0"
