"""Memory of a job over time: its recorder, the files of a record, and the report on them."""
