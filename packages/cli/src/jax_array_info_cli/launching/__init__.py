"""A program of the user's in processes of its own: started, joined, listened to, and ended together."""
