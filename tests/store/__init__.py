"""The shared store: its catalogs, their forks, and what keeps them apart."""
