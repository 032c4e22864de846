"""Tools as models see them: declared to a provider, called by it, answered in its own words. No provider's library.

profiles.py    what each provider takes             compiling.py   a schema, made that
functions.py   plain Python functions as tools      texts.py       strangers' words, as data
declaring.py   a selection, declared                dialects.py    what models answer, and are answered
running.py     the calls a model asks for, made     frameworks.py  tools for other libraries
"""
