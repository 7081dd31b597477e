"""Verbs: the public functions that make a report, render it and print it. No other module prints."""
