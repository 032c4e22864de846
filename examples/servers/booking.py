"""A server that asks its user something during a call: `python booking.py`."""

from __future__ import annotations

from minimal import Server

SEATS = ["Window", "Bar", "Garden"]
server = Server("booking", "Books tables of a restaurant that does not exist.")


@server.tool(
    "Book a table. The server asks for the seat and the number of guests.",
    {"day": {"type": "string", "format": "date"}},
    readOnlyHint=False,
    destructiveHint=False,
)
def book(day: str) -> str:
    """Ask, then book."""
    seat = {"type": "string", "title": "Seat", "enum": SEATS, "default": SEATS[0]}
    guests = {"type": "integer", "title": "Guests", "minimum": 1, "maximum": 8, "default": 2}
    answer = server.ask(f"Which table on {day}?", {"seat": seat, "guests": guests}, ["seat"])
    if answer is None:
        return "Nothing was booked."
    return f"Booked for {day}: {answer['seat']}, {answer.get('guests', 2)} guests."


server.run()
