"""The one reader of the lines of a log, which is given the words of the kinds of lines."""
