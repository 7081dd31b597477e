"""Facts and their words, without JAX.

reports: frozen dataclasses, their JSON, and the findings with their codes. pages: what each report says, as
plain blocks. explained: a text about each code.
"""
