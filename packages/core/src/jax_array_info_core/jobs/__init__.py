"""Facts about a job, over time and over processes.

timeline: memory over time, and the recorder. logs: dead jobs, from their logs. hosts: what differs between
processes, and saved reports. devices: memory statistics.
"""
