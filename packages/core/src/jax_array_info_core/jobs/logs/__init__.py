"""Logs of finished runs: the kinds of failures, the ranks, and the root."""

LOG_SUFFIXES = (".log", ".txt", ".out", ".err")
"""Endings of the names of logs in a folder. A number at the end, as in ``train.log.0``, is that of a rank."""
