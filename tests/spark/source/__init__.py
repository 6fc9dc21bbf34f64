"""Tests of the data source: read and written in this process, and once through Spark itself."""
