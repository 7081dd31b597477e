"""Colours of text and lines that are legible on white and on black pages."""

GREY = "#767676"
"""As far from white as from black: 4.5 to 1 on both, by WCAG's contrast."""

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
"""What the colours of a terminal are on a page, be it white or black: 4.5 to 1 on both."""
