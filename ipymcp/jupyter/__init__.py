"""The Jupyter server extension: brings views to kernels, and the user's own settings to views.

app.py      wires it        routes.py   what lies where
relay.py    a WebSocket, joined to the socket of a kernel: JupyterLab's sidebar
kernels.py  finds a kernel's socket                       link.py  the connection to it
rest.py     who may ask, and what is answered; sessions.py, settings.py and callback.py do
"""
