"""Reports as SVG, HTML, files and notebook output."""
