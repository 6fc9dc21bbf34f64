"""Catalogs in and out: import into a store, export to a file of its own."""
