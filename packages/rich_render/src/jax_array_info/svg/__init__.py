"""SVG elements, and text of rich as SVG and HTML."""
