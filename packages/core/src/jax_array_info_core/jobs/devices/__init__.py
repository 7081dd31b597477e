"""Devices and their memory."""
