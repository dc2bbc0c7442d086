"""Schedules: who runs what."""
