"""Tests of the Airflow surface: hooks, operators, sensors, provider info."""
