"""Measurements against other programs that do the same work, each side by side in one run."""
