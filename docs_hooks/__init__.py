"""What makes the site: runs the code of pages, shows what it prints, makes the pages that come from the code.

How code stands in a page:

- A fence ``python devices="8"`` runs on 8 fake CPU devices. A page's blocks with as many devices share a
  process and its variables; ``fresh="yes"`` begins a new one. What a block prints is shown under it, and
  its last expression where that has HTML or SVG for notebooks. ``raises="ValueError"`` shows the exception
  that ends it.
- A fence ``python file="train.py"`` is written to the folder in which all of the page runs.
- A fence ``console`` has commands after ``$ ``, each run by the shell; ``exit="1"`` is the code that they
  must have, ``devices="8"`` the fake devices of programs that do not ask for their own.
- ``width="100"`` is the width of the terminal, 80 without. A fence ``python`` without options is only
  shown.

The lines of a Python block are those of a file ``block2.py``, of its number on the page; where an output
speaks of it, that name stands above the block.

A page's blocks are collected while mkdocs reads it (``fences``), run when all pages are read (``running``),
and what they print is put under them (``terminal``). Their programs end with the build (``lifelines``).
``hook`` is what mkdocs calls.
"""
