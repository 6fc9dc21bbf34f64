"""Triggers: what waits for a lake in Airflow's triggerer, for sensors and for assets."""
