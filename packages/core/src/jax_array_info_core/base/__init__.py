"""Tools that every other module may use: text, quantities, grouping, errors, settings and names.

files: whole files, written or absent, and file descriptors.
"""
