"""The tests of airflow_provider_ducklake; they mirror the package."""
