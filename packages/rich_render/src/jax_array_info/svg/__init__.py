"""SVG elements and figures, and rich output as SVG and HTML."""
