"""Logs of finished and dead jobs."""
