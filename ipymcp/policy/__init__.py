"""May this run?"""
