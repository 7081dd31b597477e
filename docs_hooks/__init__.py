"""What makes the site: runs the code of pages, shows what it prints, makes the pages that come from the code.

A page's blocks are collected while mkdocs reads it (``fences``), run when all pages are read (``running``),
and what they print is put under them (``terminal``). ``hook`` is what mkdocs calls.
"""
