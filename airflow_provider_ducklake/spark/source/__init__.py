"""DuckLake tables as a data source of Spark: `spark.read.format("ducklake")` and write."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Make the format `ducklake` known to a Spark session.

    The password of the catalog and the settings of its storage are taken as the jobs take them:
    from the environment (`DUCKLAKE_CATALOG_PASSWORD`, `DUCKLAKE_STORAGE_<KEY>`) or from Spark's
    configuration (`spark.ducklake.catalog.password`, `spark.ducklake.storage.<key>`). They reach
    the driver's Python workers in a file that only this user can read and that goes away with this
    process; they never are options, which Spark shows to everyone.

    Args:
        spark: The session; Spark Connect is not supported.

    Raises:
        ConfigurationError: A storage setting is unknown.
    """
    from airflow_provider_ducklake.spark.credentials import hand_over
    from airflow_provider_ducklake.spark.source.data_source import source_class

    conf = dict(spark.sparkContext.getConf().getAll())
    spark.dataSource.register(source_class(hand_over(conf)))
