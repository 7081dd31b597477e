"""Colors of text and lines that are legible on white and on black pages."""

GREY = "#767676"
"""Has a WCAG contrast ratio of 4.5:1 on white and on black."""

COLORS = {
    "red": "#e12d2d",
    "green": "#148926",
    "yellow": "#947015",
    "blue": "#3771e2",
    "magenta": "#cb1ecf",
    "cyan": "#158291",
    "bright_black": GREY,
    "bright_cyan": "#158291",
    "bright_green": "#148926",
}
"""Colors of a page for those of a terminal, with a contrast ratio of 4.5:1 on white and on black."""
