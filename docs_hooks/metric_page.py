"""Reference page of the names of metrics, generated from their table."""

from __future__ import annotations

from itertools import groupby

from jax_array_info_core.facts.reports.metrics import METRICS

PAGE = """# Metrics: names and units

Log memory, sharding and program figures next to your loss.
[`metrics`](api/metrics.md#jax_array_info.metrics) returns the figures of a report as a flat dictionary:

```python
from jax_array_info import devices_report, metrics

numbers = metrics(devices_report())
# {{"jax_array_info/bytes_in_use/device_0": 2147483648.0, …}}
```

| tracker | call |
|---|---|
| clu | `writer.write_scalars(step, numbers)` |
| TensorBoard | `writer.add_scalar(name, number, step)` for each |
| Weights & Biases | `wandb.log(numbers, step=step)` |
| MLflow | `mlflow.log_metrics(numbers, step=step)` |
| Prometheus | `Gauge(name.replace("/", "_"), name).set(number)` for each |

Trackers show the part of a name before a slash as a group. Prometheus before 3.0 accepts no slashes,
and Weights & Biases advises against them for sorting runs: replaced with underscores, all names stay
different. To tell apart several reports of one class, pass
`prefix="memory/train_step"`.

These names and units do not change. A figure that is unknown is absent: it is never 0 or NaN. The number of
names does not depend on the number of arrays, leaves or processes. `{{device}}` stands for the id of a device
of this process.

{tables}
"""


def metric_page() -> str:
    """Return the page: for each class of reports, a table of its metrics."""
    tables = []
    for report, metrics in groupby(METRICS, key=lambda metric: metric.report.__name__):
        rows = [f"| `{one.name}` | {one.unit} | {one.description} |" for one in metrics]
        tables.append("\n".join([f"## {report}", "", "| name | unit | meaning |", "|---|---|---|", *rows]))
    return PAGE.format(tables="\n\n".join(tables))
