"""Tools as models see them: declared to a provider, called by it, answered in its own words. No provider's library.

    profiles.py    what each provider takes             compiling.py   a schema, made that
    functions.py   plain Python functions as tools      texts.py       strangers' words, as data
    declaring.py   tools, declared                      dialects.py    what models answer, and are answered
    running.py     the calls a model asks for, made     lanes.py       their order
    reading.py     results too long for a model         finding.py     tools too many for it
    frameworks.py  tools for other libraries

And a model, asked:

    asking.py      a question, from plan to answer      driving.py     who talks to the provider
    prompting.py   `$name` in a prompt                  answer.py      what comes of it
    coding.py      a model's Python                     sampling.py    servers that ask for a model
    pydantic_driver.py, sampled.py                      the driver on pydantic-ai, which knows the providers
"""
