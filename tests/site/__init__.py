"""The built site as its readers see it; ``nox -s docs`` builds it and runs these."""
