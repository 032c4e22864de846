"""Checks that run in the environment `models`, with the libraries for models."""
