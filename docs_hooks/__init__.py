"""Build hooks of the site: code on pages runs, and reference pages are generated from the source.

Pages store the output of their code as plain text, for readers of the Markdown files.
``nox -s docs -- --write`` writes it. The site shows it in color, and its strict build fails if the stored
output differs from the printed output.

Code on a page is in one of these fences:

- ``python devices="8"`` runs on 8 simulated CPU devices. All such blocks of a page share a process and its
  variables; ``fresh="yes"`` starts a new process. The output is stored in a ``text`` fence below the block,
  after one blank line; the site shows the HTML or SVG of expressions. With ``raises="ValueError"``, the block
  must end with that exception, which is shown.
- ``python file="train.py"`` is written to the working directory of the page.
- ``console`` has commands, each run by the shell, and the output of each below it. A line that begins with
  ``$ `` is a command, and continues on the next line after a backslash; all other lines are output. With
  ``exit="1"``, each command must have exit code 1.

``width="100"`` sets the width of the terminal, by default 80. ``varies="[0-9.]+ ms"`` is a pattern of output
that differs from run to run: its matches may differ from those stored. A ``python`` fence without options
does not run.

A Python block runs as a file such as ``block2.py``, numbered by its position on the page. If an output
mentions that file, its name is shown above the block.

mkdocs calls ``hook``, which reads the blocks of all pages (``blocks``), runs them (``running``, ``worker``
and ``notebooks``), and inserts their output into the pages (``pages``, ``terminal``).
``python -m docs_hooks`` runs them in the same way and writes the output into the Markdown files. It also
writes the pages of the command line, columns, metrics and contexts (``generated``), the pages' copies of the
README's questions (``questions``), and the picture of the README (``step_picture``).
The pages of findings are made of files in the core, which ``jai-cli explain`` prints (``finding_pages``).
"""
