"""The kernel's side of the panel: the state it shows, the commands it accepts and the channels of its views.

A subject has one module with its messages, rows and commands: servers, tools, calls, activity, results, resources,
adding, apps, logs, questions and cells. `subjects.py` lists them.

    messages.py     hello, intents and replies                panel.py        the panel, its views and their commands
    problems.py     errors, with hints that name buttons      permissions.py  what each mode permits
    state.py        the rows, and each view's snapshot        channels.py     comms and the sidebar's socket
    widget.py       the panel in a cell                       cell_forms.py   questions below a cell

The page's side is `labextension/`, from which `static/` is built.
"""
