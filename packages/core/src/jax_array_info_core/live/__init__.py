"""The arrays that are alive, counted and added up."""
