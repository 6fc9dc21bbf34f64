"""Hooks: the DuckLake connection, and the way our Spark applications are submitted."""
