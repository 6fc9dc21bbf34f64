"""Tests of the object storage floor."""
