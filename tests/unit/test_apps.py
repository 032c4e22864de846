"""The metadata of apps, and the policy of their pages: everything comes from a server, and may be anything."""

import json
from typing import Any

import pytest
from msgspec import Raw

from ipymcp.protocol.apps import PageNeeds, ToolApp, content_policy, frame_document, origin, read_page, read_tool_app

URI = "ui://server/page"


@pytest.mark.parametrize(
    ("meta", "expected"),
    [
        ({"ui": {"resourceUri": URI}}, ToolApp(URI)),
        ({"ui/resourceUri": URI}, ToolApp(URI)),
        ({"ui": {"resourceUri": URI}, "ui/resourceUri": "ui://old"}, ToolApp(URI)),
        ({"ui": {"visibility": ["app"]}}, ToolApp(is_for_models=False)),
        ({"ui": {"visibility": ["model"]}}, ToolApp(is_for_apps=False)),
        ({"ui": {"resourceUri": "https://a.example"}}, ToolApp()),
        ({"ui": {"resourceUri": 7, "visibility": "app"}}, ToolApp()),
        ({"ui": "ui"}, ToolApp()),
        (["ui"], ToolApp()),
        ({}, ToolApp()),
    ],
)
def test_the_metadata_of_a_tool_in_both_forms(meta: Any, expected: ToolApp) -> None:
    assert read_tool_app(Raw(json.dumps(meta).encode())) == expected


def test_a_tool_without_metadata_is_for_everyone() -> None:
    assert read_tool_app(Raw()) == ToolApp()


@pytest.mark.parametrize(
    ("domain", "expected"),
    [
        ("https://a.example", "https://a.example"),
        ("https://*.a.example:8443/", "https://*.a.example:8443"),
        ("WSS://A.example", "wss://a.example"),
        ("http://a.example", ""),
        ("https://*", ""),
        ("https://*.com", ""),
        ("*", ""),
        ("data:", ""),
        ("'unsafe-eval'", ""),
        ("https://a.example; script-src *", ""),
        ("https://a.example https://b.example", ""),
        ("https://a.example/path", ""),
        ('https://a.example"><script>', ""),
        ("https://localhost", ""),
        (None, ""),
    ],
)
def test_a_domain_is_an_origin_or_nothing(domain: Any, expected: str) -> None:
    assert origin(domain) == expected


def test_a_page_has_no_network_unless_it_is_granted() -> None:
    directives = dict(one.split(" ", 1) for one in content_policy(PageNeeds()).split("; "))
    assert directives["default-src"] == directives["connect-src"] == directives["frame-src"] == "'none'"
    assert directives["object-src"] == directives["base-uri"] == directives["form-action"] == "'none'"
    assert directives["script-src"] == "'unsafe-inline' 'report-sample' blob: data:"
    assert directives["img-src"] == "data: blob:"
    assert "http" not in content_policy(PageNeeds())


def test_each_grant_is_in_its_own_directives() -> None:
    needs = PageNeeds(connect=("https://c.example",), resource=("https://r.example",), frame=("https://f.example",))
    found = {one.split(" ", 1)[0]: one for one in content_policy(needs, allows_eval=True).split("; ")}
    assert {name for name, one in found.items() if "c.example" in one} == {"connect-src"}
    assert {name for name, one in found.items() if "f.example" in one} == {"frame-src"}
    kinds = {"script-src", "style-src", "img-src", "font-src", "media-src", "worker-src"}
    assert {name for name, one in found.items() if "r.example" in one} == kinds
    assert {name for name, one in found.items() if "unsafe-eval" in one} == {"script-src"}


def test_a_header_sandboxes_the_document_without_its_origin() -> None:
    policy = content_policy(PageNeeds(), is_header=True)
    assert "sandbox allow-scripts allow-forms;" in policy
    assert "allow-same-origin" not in policy
    assert "frame-ancestors 'self'" in policy


def test_the_policy_comes_before_any_script() -> None:
    document = frame_document(content_policy(PageNeeds()))
    assert document.index("Content-Security-Policy") < document.index("<script")


def resource(**members: Any) -> bytes:
    return json.dumps({"contents": [{"uri": URI, "mimeType": "text/html;profile=mcp-app", **members}]}).encode()


def test_a_page_as_text_and_as_blob() -> None:
    assert read_page(resource(text="<p>"), URI).html == "<p>"
    assert read_page(resource(blob="PHA+"), URI).html == "<p>"


def test_the_metadata_of_the_content_counts_before_that_of_the_list() -> None:
    declares = {"ui": {"csp": {"connectDomains": ["https://a.example", "http://no.example"]}, "prefersBorder": False}}
    listed = json.dumps({"ui": {"csp": {"connectDomains": ["https://b.example"]}, "permissions": {"camera": {}}}})
    own = read_page(resource(text="", _meta=declares), URI, listed.encode())
    assert own.needs == PageNeeds(connect=("https://a.example",)) and own.has_border is False
    other = read_page(resource(text=""), URI, listed.encode())
    assert other.needs == PageNeeds(connect=("https://b.example",), permissions=("camera",))


def test_the_hash_covers_the_document_and_what_it_declares() -> None:
    declares = {"ui": {"csp": {"connectDomains": ["https://a.example"]}}}
    pages = [resource(text="a"), resource(text="b"), resource(text="a", _meta=declares)]
    assert len({read_page(one, URI).hash for one in pages}) == 3


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (resource(text="x", mimeType="text/html"), "it is text/html, not text/html;profile=mcp-app"),
        (resource(blob="%"), "its content is neither text nor base64"),
        (b'{"contents": []}', "it is empty"),
        (resource(text="x" * 10_000_001), "it has 10,000,001 characters; at most 10,000,000 are shown"),
    ],
)
def test_what_is_not_a_page_is_refused(raw: bytes, why: str) -> None:
    with pytest.raises(ValueError) as caught:
        read_page(raw, URI)
    assert str(caught.value) == why
