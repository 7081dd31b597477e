"""Build hooks of the site: code on pages runs, and reference pages are generated from the source.

Code on a page is in one of these fences:

- ``python devices="8"`` runs on 8 fake CPU devices. All such blocks of a page share a process and its
  variables; ``fresh="yes"`` starts a new process. The output is shown below the block, including the HTML or
  SVG of expressions. With ``raises="ValueError"``, the block must end with that exception, which is shown.
- ``python file="train.py"`` is written to the working directory of the page.
- ``console`` has commands after ``$ ``, each run by the shell. With ``exit="1"``, each must have exit code 1.

``width="100"`` sets the width of the terminal, by default 80. A ``python`` fence without options
does not run.

A Python block runs as a file such as ``block2.py``, numbered by its position on the page. If an output
mentions that file, its name is shown above the block.

mkdocs calls ``hook``, which reads the blocks of all pages (``blocks``), runs them (``running``, ``worker``
and ``notebooks``), and inserts their output into the pages (``pages``, ``terminal``).
"""
