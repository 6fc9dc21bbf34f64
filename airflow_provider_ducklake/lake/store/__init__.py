"""The shared store: many catalogs in one PostgreSQL schema, each seen as a lake of its own."""
