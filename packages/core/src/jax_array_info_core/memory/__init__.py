"""What is alive, who made it, and what the devices say of their memory."""
