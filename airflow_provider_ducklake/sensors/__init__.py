"""Sensors that wait for something to happen in a lake."""
