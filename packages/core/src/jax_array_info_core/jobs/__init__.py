"""Facts about a job over time and over processes: records of memory, logs, hosts and devices."""
