"""Functions from the user's files, loaded and called in this process."""
