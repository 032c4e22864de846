"""Answers of servers as Python values, and how they look."""
