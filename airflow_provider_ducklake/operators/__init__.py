"""Operators: one class for each operation on a lake, run as a Spark application."""
