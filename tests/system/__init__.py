"""The example DAGs: how they parse, what their forms take, and one tenant's run through Airflow."""
