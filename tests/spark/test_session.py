"""The application of a job, where a process has one of its own already."""

from __future__ import annotations

from pyspark.sql import SparkSession

from airflow_provider_ducklake.spark.session import open_context


def test_an_application_of_somebody_else_is_left_running(spark: SparkSession) -> None:
    with open_context("a job in a notebook") as context:
        assert context is spark.sparkContext
    assert spark.range(3).count() == 3
