"""Contents of resources, messages of prompts, and arguments of templates: their values and displays."""

import base64
import copy
import json
import pickle
import re
from typing import Any

import pytest

from ipymcp import ArgumentError, McpError, PromptResult, ResourceResult
from ipymcp.api.resources import prompt, template
from ipymcp.panel.results import prompt_preview
from ipymcp.protocol.types import PromptArgument, PromptDefinition, TemplateDefinition
from ipymcp.results.content import Embedded, Text
from ipymcp.runtime.catalog import EMPTY
from ipymcp.runtime.host import Host
from tests.errors import refused

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def reading(*contents: dict[str, Any], uri: str = "x:y") -> ResourceResult:
    raw = {"contents": [{"uri": uri, **content} for content in contents]}
    return ResourceResult(json.dumps(raw).encode(), server="fs", uri=uri)


def shown(result: ResourceResult) -> dict[str, Any]:
    return result._repr_mimebundle_()


def test_text_is_text_data_bytes_and_a_frame() -> None:
    result = reading({"mimeType": "text/csv", "text": "a,b\n1,2\n3,4\n"})
    assert (result.text, result.data, result.bytes) == ("a,b\n1,2\n3,4\n",) * 2 + (b"a,b\n1,2\n3,4\n",)
    assert result.df.to_dict("list") == {"a": [1, 3], "b": [2, 4]}
    assert (str(result), result.mime_type, result.server, result.uri) == (result.text, "text/csv", "fs", "x:y")


@pytest.mark.parametrize("mime_type", ["application/json", "application/geo+json; charset=utf-8", "", "text/plain"])
def test_json_is_data_and_records_are_a_table(mime_type: str) -> None:
    result = reading({"mimeType": mime_type, "text": '[{"a": 1}, {"a": 2}]'})
    assert result.data == [{"a": 1}, {"a": 2}]
    assert "<td" in shown(result)["text/html"]
    assert repr(result) == "ResourceResult fs x:y:\na\n1\n2"


def test_a_scalar_is_data_only_where_the_server_calls_it_json() -> None:
    assert reading({"mimeType": "application/json", "text": "42"}).data == 42
    assert reading({"mimeType": "text/plain", "text": "42"}).data == "42"
    assert reading({"mimeType": "application/json", "text": "no json"}).data == "no json"


def test_an_image_is_shown_as_one_and_its_data_are_bytes() -> None:
    result = reading({"mimeType": "image/png", "blob": base64.b64encode(PNG).decode()})
    assert result.data == result.bytes == PNG
    assert list(shown(result)) == ["image/png", "text/plain"]
    assert repr(result) == "ResourceResult fs x:y: [blob: image/png, 70 bytes]"


def test_an_svg_sent_as_text_is_drawn_only_if_it_does_no_more_than_draw() -> None:
    still = '<svg xmlns="http://www.w3.org/2000/svg"><circle r="1"/></svg>'
    assert "<img src=" in shown(reading({"mimeType": "image/svg+xml", "text": still}))["text/html"]
    active = still.replace("<circle", "<script>x</script><circle")
    assert "<img" not in shown(reading({"mimeType": "image/svg+xml", "text": active})).get("text/html", "")


@pytest.mark.parametrize(
    ("mime_type", "uri", "is_markdown"),
    [
        ("text/markdown", "x:y", True),
        ("", "file:///README.md", True),
        ("text/plain", "file:///README.md", False),
        ("text/x-python", "x:y", False),
        ("text/html", "x:y", False),
    ],
)
def test_only_markdown_is_shown_as_markdown_and_html_never_as_html(mime_type: str, uri: str, is_markdown: bool) -> None:
    bundle = shown(reading({"mimeType": mime_type, "text": "# A title\n\n<b onclick='x'>bold</b>"}, uri=uri))
    assert ("text/markdown" in bundle) == is_markdown
    assert "<b" not in bundle.get("text/html", "")
    assert "<b onclick" not in bundle.get("text/markdown", "")


def test_several_contents_keep_their_uris_and_have_no_bytes_of_their_own() -> None:
    result = reading({"text": "one"}, {"text": "two"}, {"blob": "AAAA"})
    assert result.text == "one\ntwo\n[blob: x:y, 3 bytes]"
    assert [type(part) for part in result.content] == [Embedded] * 3
    assert refused(McpError, getattr, result, "bytes") == ("fs: x:y has 3 contents", "r.contents[0].data, and so on")


def test_invalid_base64_is_an_error(tmp_path: Any) -> None:
    with pytest.raises(McpError, match="x:y: the content is not base64"):
        reading({"blob": "!"}).save(tmp_path / "file")


def test_a_reading_is_a_value(tmp_path: Any) -> None:
    result = reading({"text": "text"})
    assert result == copy.deepcopy(result) == pickle.loads(pickle.dumps(result))
    assert result != reading({"text": "other"})
    assert result.save(tmp_path / "file").read_text() == "text"
    assert result.meta == {}


# -- prompts ----------------------------------------------------------------------------------------------------------


def messages(*pairs: tuple[str, Any]) -> PromptResult:
    raw = {"messages": [{"role": role, "content": content} for role, content in pairs], "description": "About."}
    return PromptResult(json.dumps(raw).encode(), server="fs", prompt="ask")


def test_a_prompt_is_its_messages() -> None:
    result = messages(("user", {"type": "text", "text": "Hi <b>"}), ("assistant", {"type": "text", "text": "Yes?"}))
    assert [message.role for message in result] == ["user", "assistant"]
    assert [message.content for message in result] == [Text("Hi <b>"), Text("Yes?")]
    assert result.text == str(result) == "user: Hi <b>\n\nassistant: Yes?"
    assert repr(result) == "PromptResult fs.ask:\nuser: Hi <b>\nassistant: Yes?"
    html = re.sub(r' style="[^"]*"', "", result._repr_mimebundle_()["text/html"])
    assert html == (
        '<div class="tex2jax_ignore mathjax_ignore">'
        '<div class="mcp-message"><div><b>user</b></div><pre>Hi &lt;b&gt;</pre></div>'
        '<div class="mcp-message mcp-reply"><div><b>assistant</b></div><pre>Yes?</pre></div></div>'
    )
    assert prompt_preview(result, None).html == result._repr_mimebundle_()["text/html"]
    assert (len(result), result[-1].text, result.description) == (2, "Yes?", "About.")
    assert result == pickle.loads(pickle.dumps(result))


def test_messages_of_one_role_are_text_without_it() -> None:
    text = {"type": "text", "text": "one"}
    image = {"type": "image", "mimeType": "image/png", "data": "AAAA"}
    assert messages(("user", text), ("user", image)).text == "one\n\n[image: image/png, 3 bytes]"
    assert messages().text == ""


def test_malformed_content_is_shown_rather_than_refused() -> None:
    assert messages(("user", 3)).text == "[unknown]"


# -- arguments --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def host() -> Host:
    return Host()


@pytest.mark.parametrize(
    ("uri_template", "args", "kwargs", "uri"),
    [
        ("db://{table}/{id}", ("birds", 3), {}, "db://birds/3"),
        ("db://{table}/{id}", (), {"table": "a b", "id": "x/y"}, "db://a%20b/x%2Fy"),
        ("file:///{+path}", ("a/b.txt",), {}, "file:///a/b.txt"),
        ("x:{/parts*}", (["a", 1],), {}, "x:/a/1"),
        ("x:all{?limit,from}", (), {"from_": True}, "x:all?from=true"),
        ("x:all{?limit,from}", (), {}, "x:all"),
        ("x:{a}{?keys*}", ("1",), {"keys": {"k": 2}}, "x:1?k=2"),
    ],
)
def test_a_template_is_filled_by_rfc_6570(
    host: Host, uri_template: str, args: tuple[Any, ...], kwargs: dict[str, Any], uri: str
) -> None:
    made = template(host, "db", TemplateDefinition(uriTemplate=uri_template, name="n"))
    assert made(*args, **kwargs).uri == uri


@pytest.mark.parametrize(
    ("args", "kwargs", "problem"),
    [
        ((), {}, "missing arguments 'table', 'id'"),
        (("a",), {"id": object()}, "id: "),
        (("a", "b", "c"), {}, "3 arguments given by position"),
        (("a", "b"), {"tabel": 1}, "no argument 'tabel'; did you mean 'table'?"),
    ],
)
def test_a_template_checks_its_parameters(host: Host, args: tuple[Any, ...], kwargs: Any, problem: str) -> None:
    rows = template(host, "db", TemplateDefinition(uriTemplate="db://{table}/{id}{?limit}"))
    assert problem in refused(ArgumentError, rows, *args, **kwargs)[0]


def test_a_prompt_has_the_signature_of_its_arguments(host: Host) -> None:
    arguments = [PromptArgument("city", required=True), PromptArgument("a-b", description="Which.")]
    definition = PromptDefinition(name="args-prompt", title="Ask", description="Asks.", arguments=arguments)
    [entry] = EMPTY.with_prompts("fs", [definition], pytest.fail).prompts.values()
    assert repr(prompt(host, entry)) == "fs.prompts.args_prompt(city: str, *, a_b: str | None = None)\n    Asks."
    assert "Prompt 'args-prompt' of the MCP server 'fs'." in (type(prompt(host, entry)).__doc__ or "")


def test_prompts_named_like_attributes_of_the_listing_get_an_underscore() -> None:
    definitions = [PromptDefinition(name=name) for name in ("df", "table", "a-b", "df")]
    said: list[str] = []
    catalog = EMPTY.with_prompts("fs", definitions, said.append)
    assert list(catalog.prompt_aliases) == ["df_", "table_", "a_b"]
    assert catalog.find_prompt("a_b") is catalog.find_prompt("a-b")
    assert said == ["two prompts are named 'df'; the first is used"]
