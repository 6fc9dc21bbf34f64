"""Tests of the kernels: DuckDB and Parquet, no catalog, no Spark."""
