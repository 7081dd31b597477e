"""Tests of the built site; ``nox -s docs`` builds it and runs them."""
