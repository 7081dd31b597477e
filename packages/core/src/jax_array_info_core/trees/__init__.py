"""Facts about trees of arrays: leaves and rows, plans, totals, specs, files, differences.

checks: the findings of a tree. stored: files of arrays, read without loading them.
"""
