"""Runs the Python blocks of the README: each prints what the block under it says."""

from sybil import Sybil
from tests.documents import printed_blocks

pytest_collect_file = Sybil(parsers=[printed_blocks], patterns=["README.md"]).pytest()
