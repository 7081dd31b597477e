"""The functions that print: each makes a report, renders it and shows it. Nothing else here prints."""
