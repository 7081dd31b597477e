"""Comparison of the processes of a job."""
