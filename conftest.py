"""Tests of the README: its Python and console blocks must print the output shown."""

from sybil import Sybil
from tests.documents import printed_blocks

pytest_plugins = ["pytester"]  # for the tests of the pytest plugin
pytest_collect_file = Sybil(parsers=[printed_blocks], patterns=["README.md"]).pytest()
