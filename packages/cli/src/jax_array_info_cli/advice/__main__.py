"""The start of a process that runs the user's file."""

from .child import main

main()
