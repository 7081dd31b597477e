"""The making of the site: the code of pages runs, and some pages come from the program itself.

Code stands in a page as one of these fences:

- ``python devices="8"`` runs on 8 fake CPU devices. All such blocks of a page share a process and its
  variables; ``fresh="yes"`` begins a new process. The output is shown under the block, and its expressions
  where they have HTML or SVG for notebooks. ``raises="ValueError"`` shows the exception that ends it.
- ``python file="train.py"`` is written to the folder in which all of the page runs.
- ``console`` has commands after ``$ ``, each run by the shell; all must have the exit code of ``exit="1"``.

``width="100"`` is the width of the terminal, 80 without. A fence ``python`` without options is only shown.

The lines of a Python block are those of a file ``block2.py``, by its number on the page. Where an output
names that file, the name stands above the block.

``hook`` is called by mkdocs. It reads the blocks of all pages (``blocks``), runs them (``running`` and
``worker``, ``notebooks``), and puts their output into the pages (``pages``, ``terminal``).
"""
