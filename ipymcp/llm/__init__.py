"""Tools as models see them: declared to a provider, called by it, answered in its own words. No provider's library.

    profiles.py    what each provider takes             compiling.py   a schema, made that
    keywords.py    what one may say in it               texts.py       strangers' words, as data
    references.py  what it says once, for two places
    functions.py   plain Python functions as tools      declaring.py   tools, declared
    dialects.py    what models answer, and are told     outcome.py     one call, and what came of it
    running.py     the calls a model asks for, made     lanes.py       their order
    values.py      what comes back, in words and rows   reading.py     what of it is too long
    finding.py     tools too many for a model           frameworks.py  tools for other libraries

And a model, asked:

    asking.py      a question, from plan to answer      driving.py     who talks to the provider
    prompting.py   `$name` in a prompt                  answer.py      what comes of it
    coding.py      a model's Python                     sampling.py    servers that ask for a model
    pydantic_driver.py, sampled.py                      the driver on pydantic-ai, which knows the providers
"""
