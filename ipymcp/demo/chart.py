"""Charts as PNG files, drawn with the standard library alone."""

from __future__ import annotations

import struct
import zlib

PALETTE = bytes.fromhex("ff8c00 a034f0 159090 ffffff 4477aa 333333")
WHITE, INK = 3, 5
CHARACTERS = " ()+-./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"
GLYPHS = bytes.fromhex(
    "0000000000 001c224100 0041221c00 08083e0808 0808080808 0000606000 2010080402 3e5149453e 00427f4000 7249494946"
    "2141494d33 1814127f10 2745454539 3c4a494931 4121110907 3649494936 464949291e 7c1211127c 7f49494936 3e41414122"
    "7f4141413e 7f49494941 7f09090901 3e41415173 7f0808087f 00417f4100 2040413f01 7f08142241 7f40404040 7f021c027f"
    "7f0408107f 3e4141413e 7f09090906 3e4151215e 7f09192946 2649494932 03017f0103 3f4040403f 1f2040201f 3f4038403f"
    "6314081463 0304780403 6159494d43 4040404040 2054547840 7f28444438 3844444428 384444287f 3854545418 00087e0902"
    "18a4a49c78 7f08040478 00447d4000 2040403d00 7f10284400 00417f4000 7c04780478 7c08040478 3844444438 fc18242418"
    "18242418fc 7c08040408 4854545424 04043f4424 3c4040207c 1c2040201c 3c4030403c 4428102844 4c9090907c 4464544c44"
)
"""Five columns a character, the lowest bit on top."""
ADVANCE, LINE = 6, 9


def draw(
    kind: str,
    points: list[tuple[float, float, int]],
    width: int,
    height: int,
    *,
    across: str = "",
    up: str = "",
    names: tuple[str, ...] = (),
) -> bytes:
    """A chart as a PNG file.

    Args:
        kind: `bar` or `scatter`.
        points: (x, y, colour) of each.
        width: In pixels.
        height: In pixels.
        across: What the horizontal axis shows.
        up: What the vertical axis shows.
        names: Of the colours, written under the bars, or beside the scattered points as a legend.
    """
    pixels = [bytearray([WHITE]) * width for _ in range(height)]
    size = 2 if width >= 400 and height >= 200 else 1

    def fill(left: float, top: float, right: float, bottom: float, colour: int) -> None:
        start, end = max(round(left), 0), min(max(round(right), round(left) + 1), width)
        for row in pixels[max(round(top), 0) : max(round(bottom), round(top) + 1)]:
            row[start:end] = bytes([colour]) * (end - start)

    def length(text: str, size: int = size) -> int:
        return size * ADVANCE * len(text)

    def write(left: float, top: float, text: str, size: int = size) -> None:
        for place, character in enumerate(text):
            at = max(CHARACTERS.find(character), 0) * 5
            for x, column in enumerate(GLYPHS[at : at + 5]):
                for y in (y for y in range(8) if column >> y & 1):
                    dot = round(left) + size * (ADVANCE * place + x), round(top) + size * y
                    fill(*dot, dot[0] + size, dot[1] + size, INK)

    xs, ys = [x for x, _, _ in points], [y for _, y, _ in points]
    low, high = (min(0, *ys), max(0, *ys)) if kind == "bar" else (min(ys), max(ys))
    line = size * LINE
    left, right = 12 + max(length(f"{y:.4g}") for y in (low, high)) + 4 * size, width - 20
    top, bottom = 8 + (line + 14 if up else 4), height - 12 - line

    def down(y: float) -> float:
        return bottom - (y - low) * (bottom - top) / (high - low or 1)

    write(8, 6, up)
    for y in {low, high}:
        text = f"{y:.4g}"
        write(left - 4 * size - length(text) - 4, min(max(down(y) - 4 * size, top - 4 * size), bottom - 7 * size), text)
    step = (right - left) / len(points)
    for i, (x, y, colour) in enumerate(points):
        if kind == "bar":
            ends = sorted((down(0), down(y)))
            fill(left + step * (i + 0.1), ends[0], left + step * (i + 0.9), ends[1], colour)
            if names and length(names[colour]) < step:
                write(left + step * (i + 0.5) - length(names[colour]) / 2, bottom + 6, names[colour])
        else:
            column = left + 4 + (x - min(xs)) * (right - left - 8) / (max(xs) - min(xs) or 1)
            fill(column - 3, down(y) - 3, column + 3, down(y) + 3, colour)
    if kind == "scatter":
        ends_of_x = [f"{x:.4g}" for x in (min(xs), max(xs))]
        write(left, bottom + 6, ends_of_x[0])
        write(right - length(ends_of_x[1]), bottom + 6, ends_of_x[1])
        for dot in range(size, 0, -1):
            place = right - sum(length(f"{name}   ", dot) for name in names)
            if names and place > 20 + length(up):
                for colour, name in enumerate(names):
                    fill(place, 6 + dot, place + 6 * dot, 6 + 7 * dot, colour)
                    write(place + 8 * dot, 6, name, dot)
                    place += length(f"{name}   ", dot)
                break
    if length(across) < (right - left) / 2:
        write((left + right - length(across)) / 2, bottom + 6, across)
    fill(left - 4, top - 2, left - 3, bottom + 3, INK)
    axis = down(0) if kind == "bar" else bottom + 3
    fill(left - 4, axis, right, axis + 1, INK)
    return png(width, height, b"".join(b"\0" + row for row in pixels))


def png(width: int, height: int, pixels: bytes) -> bytes:
    """A PNG file of palette colours, a byte a pixel, each row led by its filter byte."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)) + chunk(b"PLTE", PALETTE)
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(pixels)) + chunk(b"IEND", b"")
