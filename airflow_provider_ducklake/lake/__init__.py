"""The DuckLake protocol in plain Python and SQL: no Airflow, no Spark, no DuckLake extension."""
