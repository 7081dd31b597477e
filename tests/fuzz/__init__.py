"""Mutated inputs of every reader: each is a report or one clear error, in bounded memory and time."""
