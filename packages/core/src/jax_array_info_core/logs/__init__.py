"""Logs of finished runs: the kinds of failures, the ranks, and the root."""
