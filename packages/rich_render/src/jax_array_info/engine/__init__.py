"""Blocks of pages on a console and in documents."""
