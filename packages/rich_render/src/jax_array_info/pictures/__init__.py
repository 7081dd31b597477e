"""Pictures of layouts, as text and as SVG."""
