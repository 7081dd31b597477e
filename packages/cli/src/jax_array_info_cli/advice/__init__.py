"""``jai-cli advise``: changes that are applied to the user's source in processes of their own."""
