"""Trees and findings for the tests of checks."""

import jax
import jax.numpy as jnp


def abstract(*shape, dtype=jnp.float32):
    """Return an array's shape and dtype."""
    return jax.ShapeDtypeStruct(shape, dtype)


def kinds(report):
    """Return the kinds of the findings of a report."""
    return [finding.kind for finding in report.findings]


def the_finding(report, kind):
    """Return the only finding of a kind."""
    [finding] = [finding for finding in report.findings if finding.kind == kind]
    return finding


def paths(finding):
    """Return the paths of a finding's leaves."""
    return [leaf.path for leaf in finding.leaves]
