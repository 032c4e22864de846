"""The panel's side in the kernel: what it shows, what it may do, and how messages come and go.

state.py      what is shown, as plain JSON          scan.py      notices what changed
view.py       one attached view and its messages    panel.py     all of them; belongs to the background loop
intents.py    what a view may ask for, a function a verb; tooling.py has those about tools
preview.py    results, cut to what a page can show  code.py      a call as Python, and as a %mcp line
questions.py  questions, asked in the panel         widget.py    in a cell, over a comm
relay.py      the socket of JupyterLab's sidebar    meeting.py   how that is found
"""
