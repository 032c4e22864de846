"""Results of servers as Python values, and their rendering."""
