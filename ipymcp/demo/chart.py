"""Charts as PNG files, drawn with the standard library alone: anti-aliased lines, and a stroke font."""

from __future__ import annotations

import itertools
import math
import struct
import zlib
from functools import cache

PALETTE = ((255, 140, 0), (160, 52, 240), (21, 144, 144), (255, 255, 255), (68, 119, 170))
"""The colours of points and bars; the fourth is the background."""
INK, GRID = (51, 51, 51), (226, 226, 226)
STROKE = 1.0
"""The width of the font's lines, in its units."""
ASCENT, CAPITAL, DESCENT = 7.5, 7.0, 2.3
GLYPHS = {
    " ": "3",
    "(": "3 A 3.9 2.7 2.6 5.2 125 235",
    ")": "3 A -.9 2.7 2.6 5.2 55 -55",
    "+": "5.2 L .6 3 4.4 3 L 2.5 1.1 2.5 4.9",
    "-": "3.6 L .6 2.8 2.9 2.8",
    ".": "2.2 L 1 .1 1 .2",
    "0": "5.2 A 2.6 3.5 2 3.5 0 360",
    "1": "5.2 L 1.1 5.6 2.9 7 2.9 0",
    "2": "5.2 A 2.5 5 1.9 2 170 -35 L 4.06 3.85 .6 0 4.6 0",
    "3": "5.2 A 2.4 5.3 1.8 1.7 150 -90 A 2.4 1.8 2.1 1.8 90 -150",
    "4": "5.2 L 3.7 0 3.7 7 .4 2.1 4.9 2.1",
    "5": "5.2 L 4.2 7 1.2 7 .9 3.9 A 2.4 2.3 2.1 2.3 135 -150",
    "6": "5.2 A 2.6 2.2 2 2.2 0 360 A 4.1 2.3 3.5 4.7 180 100",
    "7": "5.2 L .6 7 4.6 7 1.9 0",
    "8": "5.2 A 2.6 5.3 1.7 1.7 0 360 A 2.6 1.8 2.1 1.8 0 360",
    "9": "5.2 A 2.6 4.8 2 2.2 0 360 A 1.1 4.7 3.5 4.7 0 -80",
    "A": "6 L .3 0 3 7 5.7 0 L 1.3 2.4 4.7 2.4",
    "B": "5.7 L 2.7 0 .8 0 .8 7 2.6 7 A 2.6 5.3 1.8 1.7 90 -90 L .8 3.6 2.7 3.6 A 2.7 1.8 2.1 1.8 90 -90",
    "C": "6.2 A 3.4 3.5 2.9 3.5 45 315",
    "F": "5 L .8 0 .8 7 4.6 7 L .8 3.6 4.1 3.6",
    "G": "7 A 3.4 3.5 2.9 3.5 45 330 L 3.8 3.1 6.1 3.1 6.1 1.2",
    "M": "7.6 L .8 0 .8 7 3.8 2 6.8 7 6.8 0",
    "a": "5.3 A 2.4 2.5 1.9 2.5 0 360 L 4.3 5 4.3 0",
    "b": "5.4 L .8 7.4 .8 0 A 2.8 2.5 1.9 2.5 0 360",
    "c": "4.7 A 2.5 2.5 1.9 2.5 45 315",
    "d": "5.4 A 2.4 2.5 1.9 2.5 0 360 L 4.4 7.4 4.4 0",
    "e": "5.1 A 2.5 2.5 1.9 2.5 0 315 L .6 2.5 4.4 2.5",
    "f": "3.1 L 1.4 0 1.4 5.8 A 2.7 5.8 1.3 1.6 180 75 L .3 4.8 2.8 4.8",
    "g": "5.4 A 2.4 2.5 1.9 2.5 0 360 L 4.4 5 4.4 -.4 A 2.5 -.4 1.9 1.7 0 -145",
    "h": "5.3 L .8 7.4 .8 0 A 2.6 3.1 1.8 1.9 180 0 L 4.4 3.1 4.4 0",
    "i": "2 L 1 5 1 0 L 1 6.9 1 7",
    "l": "2 L 1 7.4 1 0",
    "m": "7.6 L .8 5 .8 0 A 2.3 3.3 1.5 1.7 180 0 L 3.8 3.3 3.8 0 A 5.3 3.3 1.5 1.7 180 0 L 6.8 3.3 6.8 0",
    "n": "5.3 L .8 5 .8 0 A 2.6 3.1 1.8 1.9 180 0 L 4.4 3.1 4.4 0",
    "o": "5.1 A 2.55 2.5 2 2.5 0 360",
    "p": "5.4 L .8 5 .8 -2 A 2.8 2.5 1.9 2.5 0 360",
    "r": "3.4 L .8 5 .8 0 A 2.6 3.1 1.8 1.9 180 70",
    "s": "4.5 A 2.2 3.7 1.5 1.3 40 270 A 2.2 1.2 1.6 1.2 90 -145",
    "t": "3.2 L 1.4 6.5 1.4 1.3 A 2.6 1.3 1.2 1.3 180 285 L .3 4.8 2.8 4.8",
    "y": "4.7 L .4 5 2.4 .2 L 4.3 5 2.1 -.6 1.4 -1.8 .5 -1.9",
}
"""The width and the strokes of each character: lines (L x y x y …), and arcs (A x y radius radius from to)."""
STEPS = 24
"""The lines that a full circle is drawn with."""

MANY = 200
"""Points beyond this number are drawn smaller."""

Colour = tuple[int, int, int]
Line = tuple[float, float, float, float]


@cache
def strokes(character: str) -> tuple[float, tuple[Line, ...]]:
    """A character's width and the lines that draw it; a blank for a character that the font lacks."""
    words = GLYPHS.get(character, GLYPHS[" "]).split()
    lines: list[Line] = []
    at = 1
    while at < len(words):
        end = next((each for each in range(at + 1, len(words)) if words[each] in "LA"), len(words))
        numbers = [float(word) for word in words[at + 1 : end]]
        if words[at] == "A":
            x, y, wide, high, first, last = numbers
            steps = max(4, round(abs(last - first) / 360 * STEPS))
            angles = [math.radians(first + (last - first) * step / steps) for step in range(steps + 1)]
            points = [(x + wide * math.cos(angle), y + high * math.sin(angle)) for angle in angles]
        else:
            points = list(zip(numbers[::2], numbers[1::2], strict=True))
        lines += [(*start, *stop) for start, stop in itertools.pairwise(points)]
        at = end
    return float(words[0]), tuple(lines)


class Canvas:
    """An RGB image on which shapes with smooth edges are drawn.

    Args:
        width: Width in pixels.
        height: Height in pixels.
        size: Pixels per unit of the font.
    """

    def __init__(self, width: int, height: int, size: float) -> None:
        self.width, self.height, self.size = width, height, size
        self._rows = [bytearray(bytes(PALETTE[3]) * width) for _ in range(height)]

    def fill(self, left: float, top: float, right: float, bottom: float, colour: Colour) -> None:
        """Draw a rectangle of whole pixels, at least one wide and high."""
        start, end = max(round(left), 0), min(max(round(right), round(left) + 1), self.width)
        for row in self._rows[max(round(top), 0) : max(round(bottom), round(top) + 1)]:
            row[3 * start : 3 * end] = bytes(colour) * (end - start)

    def disc(self, x: float, y: float, radius: float, colour: Colour) -> None:
        """Draw a filled circle."""
        self._draw([(x, y, x, y)], radius, colour)

    def length(self, text: str) -> float:
        """The width of a text."""
        return sum(strokes(character)[0] for character in text) * self.size

    def write(self, left: float, baseline: float, text: str) -> None:
        """Draw a text."""
        lines: list[Line] = []
        for character in text:
            width, drawn = strokes(character)
            lines += [
                (left + a * self.size, baseline - b * self.size, left + c * self.size, baseline - d * self.size)
                for a, b, c, d in drawn
            ]
            left += width * self.size
        self._draw(lines, STROKE * self.size / 2, INK)

    def _draw(self, lines: list[Line], radius: float, colour: Colour) -> None:
        """Draw lines with round ends; where they cross, the colour is no darker."""
        covered: dict[tuple[int, int], float] = {}
        reach = radius + 1
        for a, b, c, d in lines:
            across, down = c - a, d - b
            square = across * across + down * down
            for y in range(max(math.floor(min(b, d) - reach), 0), min(math.ceil(max(b, d) + reach), self.height)):
                for x in range(max(math.floor(min(a, c) - reach), 0), min(math.ceil(max(a, c) + reach), self.width)):
                    right, below = x + 0.5 - a, y + 0.5 - b
                    part = min(max((right * across + below * down) / square, 0), 1) if square else 0
                    cover = radius + 0.5 - math.hypot(right - part * across, below - part * down)
                    if cover > covered.get((x, y), 0):
                        covered[x, y] = cover
        for (x, y), cover in covered.items():
            pixel = self._rows[y][3 * x : 3 * x + 3]
            part = min(cover, 1)
            self._rows[y][3 * x : 3 * x + 3] = bytes(
                round(old + (new - old) * part) for old, new in zip(pixel, colour, strict=True)
            )

    def png(self) -> bytes:
        """The image as a PNG file."""

        def chunk(kind: bytes, data: bytes) -> bytes:
            return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

        header = chunk(b"IHDR", struct.pack(">IIBBBBB", self.width, self.height, 8, 2, 0, 0, 0))
        pixels = zlib.compress(b"".join(b"\0" + row for row in self._rows))
        return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def ticks(low: float, high: float, count: int) -> list[float]:
    """About `count` round numbers from `low` to `high`."""
    rough = (high - low) / max(count, 1) or abs(high) or 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [number * step for number in range(first, last + 1)] or [low]


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
    """Draw a chart.

    Args:
        kind: `bar` or `scatter`.
        points: (x, y, index in `PALETTE`) of each.
        width: Width in pixels.
        height: Height in pixels.
        across: The label of the horizontal axis.
        up: The label of the vertical axis.
        names: The names of the colours, written under the bars, or above the scattered points as a legend.

    Returns:
        A PNG file.
    """
    size = min(max(min(width / 380, height / 250), 1.0), 3.0)
    canvas = Canvas(width, height, size)
    gap, line = 6 * size, (ASCENT + DESCENT + 2) * size
    xs, ys = [x for x, _, _ in points], [y for _, y, _ in points]
    margin = (max(ys) - min(ys)) * 0.04
    low, high = (min(0, *ys) * 1.05, max(0, *ys) * 1.05) if kind == "bar" else (min(ys) - margin, max(ys) + margin)
    marks = ticks(low, high, max(2, int(height / (5 * line)) + 1))
    shown = [f"{y:.4g}" for y in marks]
    has_legend = kind == "scatter" and bool(names)
    top = gap + (line if up or has_legend else 0) + CAPITAL * size / 2
    bottom = height - gap - line * (1 + bool(across))
    left, right = 2 * gap + max(map(canvas.length, shown)), width - 2 * gap

    def row_of(y: float) -> float:
        return bottom - (y - low) * (bottom - top) / (high - low or 1)

    for y, text in zip(marks, shown, strict=True):
        canvas.fill(left, row_of(y), right, row_of(y) + 1, GRID)
        canvas.write(left - gap - canvas.length(text), row_of(y) + CAPITAL * size / 2, text)
    baseline = bottom + gap + CAPITAL * size
    if kind == "bar":
        step = (right - left) / len(points)
        for place, (_, y, colour) in enumerate(points):
            ends = sorted((row_of(0), row_of(y)))
            canvas.fill(left + step * (place + 0.15), ends[0], left + step * (place + 0.85), ends[1], PALETTE[colour])
            if names and (wide := canvas.length(names[colour])) < step:
                canvas.write(left + step * (place + 0.5) - wide / 2, baseline, names[colour])
    else:
        dot = (2.6 if len(points) <= MANY else 1.3) * size
        inner = (left + 2 * dot, right - 2 * dot)
        low_x, high_x = min(xs), max(xs)

        def column_of(x: float) -> float:
            return inner[0] + (x - low_x) * (inner[1] - inner[0]) / (high_x - low_x or 1)

        for x in ticks(low_x, high_x, max(2, int((right - left) / (50 * size)))):
            text = f"{x:.4g}"
            canvas.fill(column_of(x), bottom, column_of(x) + 1, bottom + gap / 2, INK)
            canvas.write(column_of(x) - canvas.length(text) / 2, baseline, text)
        for x, y, colour in points:
            canvas.disc(column_of(x), row_of(y), dot, PALETTE[colour])
    canvas.fill(left, row_of(0) if kind == "bar" else bottom, right, 1 + (row_of(0) if kind == "bar" else bottom), INK)
    title = gap + CAPITAL * size
    if has_legend:
        wide = sum(canvas.length(name) + 4 * gap for name in names) - gap
        if wide + canvas.length(up) + 2 * gap < width:
            place = right - wide
            for colour, name in enumerate(names):
                canvas.disc(place + gap, title - CAPITAL * size / 2, 2.6 * size, PALETTE[colour])
                canvas.write(place + 2 * gap, title, name)
                place += canvas.length(name) + 4 * gap
    canvas.write(gap, title, up)
    canvas.write((left + right - canvas.length(across)) / 2, baseline + line, across)
    return canvas.png()
