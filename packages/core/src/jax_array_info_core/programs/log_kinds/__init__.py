"""Kinds of lines in logs: wordings, roles, causes and remedies."""
