"""What one executor does to one group of files, with DuckDB and no catalog connection."""
