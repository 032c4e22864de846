"""Charts as PNG files, drawn with the standard library alone."""

from __future__ import annotations

import struct
import zlib

PALETTE = bytes.fromhex("ff8c00 a034f0 159090 ffffff 4477aa 333333")
WHITE, INK = 3, 5
DIGITS = "75557 26227 71747 71717 55711 74717 74757 71111 75757 75717 00002 00700 02720 75747"
"""The glyphs of `0123456789.-+e`: five rows of three dots, one octal digit a row."""


def draw(kind: str, points: list[tuple[float, float, int]], width: int, height: int) -> bytes:
    """A chart of (x, y, colour) as a PNG file, the range of y written at its side."""
    pixels = [bytearray([WHITE]) * width for _ in range(height)]

    def fill(left: float, top: float, right: float, bottom: float, colour: int) -> None:
        start, end = round(left), max(round(right), round(left) + 1)
        for row in pixels[round(top) : max(round(bottom), round(top) + 1)]:
            row[start:end] = bytes([colour]) * (end - start)

    def label(top: float, number: float) -> None:
        for i, character in enumerate(f"{number:.4g}"):
            for y, bits in enumerate(DIGITS.split()["0123456789.-+e".index(character)]):
                for x in (x for x in range(3) if int(bits) & 4 >> x):
                    fill(6 + 8 * i + 2 * x, top + 2 * y, 8 + 8 * i + 2 * x, top + 2 * y + 2, INK)

    xs, ys = [x for x, _, _ in points], [y for _, y, _ in points]
    low, high = (min(0, *ys), max(0, *ys)) if kind == "bar" else (min(ys), max(ys))
    left, right, top, bottom = 80, width - 20, 16, height - 20

    def down(y: float) -> float:
        return bottom - (y - low) * (bottom - top) / (high - low or 1)

    for y in {low, high}:
        label(down(y) - 5, y)
    step = (right - left) / len(points)
    for i, (x, y, colour) in enumerate(points):
        if kind == "bar":
            ends = sorted((down(0), down(y)))
            fill(left + step * (i + 0.1), ends[0], left + step * (i + 0.9), ends[1], colour)
        else:
            across = left + (x - min(xs)) * (right - left) / (max(xs) - min(xs) or 1)
            fill(across - 3, down(y) - 3, across + 3, down(y) + 3, colour)
    fill(left - 10, top, left - 9, bottom, INK)
    fill(left - 10, down(0) if kind == "bar" else bottom + 8, right, 0, INK)
    return png(width, height, b"".join(b"\0" + row for row in pixels))


def png(width: int, height: int, pixels: bytes) -> bytes:
    """A PNG file of palette colours, a byte a pixel, each row led by its filter byte."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)) + chunk(b"PLTE", PALETTE)
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(pixels)) + chunk(b"IEND", b"")
