"""The panel's side in the kernel: what it shows, what it may do, and how messages come and go.

    panel.py      all views; on the background loop     view.py       one of them, and what it says
    state.py      what is shown, as plain JSON          shown.py      notices what has changed
    picture.py    what a view has of that               logs.py       a log, as a view follows it
    messages.py   the protocol's words, and the modes   intents.py    what a view may ask for, a function a verb
    tooling.py    the same, about tools and offers      preview.py    results, cut to what a page can show
    code.py       a call as Python, and as a line       questions.py  asked in the panel; answers.py reads what comes
    form.py       a question below a cell           told.py       the line that stays of it
    display.py    a panel or a card in a cell           widget.py     live there
    relay.py      the socket of JupyterLab's sidebar    meeting.py    how that is found
    comm.py       views over comms: a cell's, and the sidebar's where there is no relay

The page's side is `labextension/`; `static/` is built from it.
"""
