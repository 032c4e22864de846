"""The parts of an answer."""

import base64
import pickle
from pathlib import Path

import pytest

from ipymcp.results.content import Audio, Embedded, Image, Link, Text, Unknown, read_part

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)
SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><circle r="1" fill="url(#a)"/></svg>'


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def unknown(kind: str, **members: object) -> tuple[object, Unknown]:
    return {"type": kind, **members}, Unknown(kind, {"type": kind, **members})


@pytest.mark.parametrize(
    ("value", "part"),
    [
        ({"type": "text", "text": "a"}, Text("a")),
        ({"type": "image", "data": "AAAA", "mimeType": "image/png"}, Image("AAAA", "image/png")),
        ({"type": "image", "data": "AAAA"}, Image("AAAA", "image")),
        ({"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}, Audio("AAAA", "audio/wav")),
        (
            {"type": "resource_link", "uri": "a:b", "name": "n", "title": "t", "description": "d", "mimeType": "m/t"},
            Link("a:b", "n", "t", "d", "m/t"),
        ),
        ({"type": "resource", "resource": {"uri": "a:b", "text": "x"}}, Embedded("a:b", "", "x")),
        (
            {"type": "resource", "resource": {"uri": "a:b", "blob": "AAAA", "mimeType": "m/t"}},
            Embedded("a:b", "m/t", None, "AAAA"),
        ),
        unknown("text"),
        unknown("image", data=3),
        unknown("resource", resource={}),
        unknown("resource", resource="x"),
        unknown("resource_link"),
        unknown("new"),
        ({"type": 3}, Unknown("unknown", {"type": 3})),
        ("loose", Text("loose")),
        (3, Unknown("unknown", 3)),
        (None, Unknown("unknown", None)),
    ],
)
def test_any_part_is_read_without_an_error(value: object, part: object) -> None:
    assert read_part(value) == part
    assert pickle.loads(pickle.dumps(part)) == part


@pytest.mark.parametrize("value", [encoded(PNG), encoded(PNG).rstrip("="), encoded(PNG)[:8] + "\n" + encoded(PNG)[8:]])
def test_base64_is_decoded_with_or_without_padding_and_line_breaks(value: str) -> None:
    assert Image(value, "image/png").data == PNG


def test_invalid_base64_is_a_value_error_and_has_no_display() -> None:
    image = Image("!!", "image/png")
    with pytest.raises(ValueError, match="not base64"):
        _ = image.data
    assert image._repr_mimebundle_() == {"text/plain": "<Image image/png, 1 bytes>"}
    assert Image("é", "image/svg+xml").display_type is None
    assert Audio("!!", "audio/wav").display_type is None


@pytest.mark.parametrize(
    ("data", "declared", "kind"),
    [
        (PNG, "image/png", "image/png"),
        (PNG, "image/jpeg", "image/png"),
        (b"\xff\xd8\xff\xe0" + bytes(9), "image/jpeg", "image/jpeg"),
        (b"GIF89a" + bytes(9), "image/gif", "image/gif"),
        (b"RIFF\x00\x00\x00\x00WEBPVP8 ", "image/webp", "image/webp"),
        (SVG, "image/svg+xml", "image/svg+xml"),
        (SVG, "image/png", None),
        (b"<script>alert(1)</script>", "image/png", None),
        (b"<html>", "image/svg+xml", None),
        (SVG + b"\xff", "image/svg+xml", None),
        (b"plain", "text/html", None),
        (b"", "image/png", None),
    ],
)
def test_the_display_type_of_an_image_comes_from_its_bytes(data: bytes, declared: str, kind: str | None) -> None:
    assert Image(encoded(data), declared).display_type == kind


@pytest.mark.parametrize(
    "inside",
    [
        b"<script>alert(1)</script>", b"<svg:script>1</svg:script>", b"<img src='http://evil.invalid'/>",
        b"<x:img src='#'/>", b"<embed src=http://evil.invalid>", b"<object data=http://evil.invalid>",
        b"<link rel=stylesheet href=http://evil.invalid>",
        b"<meta http-equiv=refresh content='0;http://evil.invalid'>", b"<video src=http://evil.invalid>",
        b"<feImage href='http://evil.invalid'/>", b"<form action=http://evil.invalid>",
        b"<textPath href='http://evil.invalid'/>", b"<rect style='fill:u\\72l(http://evil.invalid)'/>",
        b"<![CDATA[<img src=x>]]>", b'<g onload="alert(1)"/>', b"<g onload =alert(1) />",
        b'<a href="javascript:alert(1)">x</a>', b"<foreignObject><b/></foreignObject>",
        b'<image href="https://evil.example/x.png"/>', b'<use href="data:x"/>',
        b'<set attributeName="href" to="x"/>', b"<style>@import url(https://evil.example)</style>",
        b'<rect fill="url(https://evil.example/x)"/>', b"<!ENTITY x 'y'>", b'<rect fill="&#117;rl(x)"/>',
    ],
)  # fmt: skip
def test_an_svg_with_active_content_is_not_shown(inside: bytes) -> None:
    assert Image(encoded(SVG.replace(b"<circle", inside + b"<circle")), "image/svg+xml").display_type is None


@pytest.mark.parametrize(
    ("image", "shown"),
    [
        (
            Image(encoded(PNG).rstrip("="), "image/png"),
            {"text/plain": "<Image image/png, 28 bytes>", "image/png": encoded(PNG)},
        ),
        (
            Image(encoded(SVG), "image/svg+xml"),
            {
                "text/plain": f"<Image image/svg+xml, {len(SVG)} bytes>",
                "text/html": f'<img src="data:image/svg+xml;base64,{encoded(SVG)}" alt="SVG">',
            },
        ),
    ],
    ids=["PNG", "SVG"],
)
def test_an_image_is_displayed_and_an_svg_never_becomes_a_part_of_the_page(image: Image, shown: dict[str, str]) -> None:
    assert image._repr_mimebundle_() == shown


@pytest.mark.parametrize(
    ("part", "data"),
    [
        (Image(encoded(PNG), "image/png"), PNG),
        (Audio(encoded(PNG), "audio/wav"), PNG),
        (Embedded("a:b", "m/t", None, encoded(PNG)), PNG),
        (Embedded("a:b", "text/plain", "é"), b"\xc3\xa9"),
    ],
)
def test_a_part_is_saved_to_a_file(part: Image | Audio | Embedded, data: bytes, tmp_path: Path) -> None:
    assert part.save(tmp_path / "path").read_bytes() == data
    assert part.save(str(tmp_path / "string")).read_bytes() == data


def test_reprs_are_short() -> None:
    assert repr(Embedded("a:b", "text/plain", "x" * 5000)) == "<Embedded a:b, 5,000 characters>"
    assert repr(Embedded("a:b", "", None, "AAAA")) == "<Embedded [blob: a:b, 3 bytes]>"
    assert repr(Audio("AAAA", "audio/wav")) == "<Audio audio/wav, 3 bytes>"


def test_only_audio_types_are_played() -> None:
    assert Audio("AAAA", "audio/mpeg").display_type == "audio/mpeg"
    assert Audio("AAAA", 'audio/x" onerror="1').display_type is None
    assert Audio("AAAA", "text/html").display_type is None
