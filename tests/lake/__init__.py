"""Tests of the protocol floor."""
