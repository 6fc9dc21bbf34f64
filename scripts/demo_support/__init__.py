"""What `make demo` is made of: real data, Airflow runs, an independent check, and what is shown."""
