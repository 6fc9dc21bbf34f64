"""Catalogs in and out of a store: nothing a client reads may change on the way."""
