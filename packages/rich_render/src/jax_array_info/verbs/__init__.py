"""Public functions that build a report, render it and print it. No other module prints."""
