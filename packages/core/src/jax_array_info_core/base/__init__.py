"""Text, quantities, errors, settings and files, which every other module may use."""
