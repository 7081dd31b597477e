"""Tables, panels and lines of text for reports."""
