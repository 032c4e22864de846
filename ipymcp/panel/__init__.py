"""The kernel's side of the panel: the state it shows, the commands it accepts and the channels of its views.

    messages.py     the messages of the protocol              permissions.py  what each mode permits
    rows.py         rows of servers, tools, calls and logs    state.py        the rows, and each view's snapshot of them
    questions.py    questions to the user                     panel.py        the panel and its views
    commands.py     the commands of views, by verb            channels.py     comms and the sidebar's socket
    widget.py       the panel in a cell                       cell_forms.py   questions below a cell

The page's side is `labextension/`, from which `static/` is built.
"""
