"""Reports as pictures to keep: SVG, HTML and files. Imported when one is asked for, not before."""
