"""The search over tools, on the tools of real servers; `tests/fixtures/tools.json` has their names and descriptions.

Every second query was left out when the weights were chosen, except for the last threshold; the two halves are tested
apart, so that a ranking that fits only the first shows.
"""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from ipymcp.llm.providers import Declaration
from ipymcp.llm.tool_definitions import DeclarationCache
from ipymcp.llm.tool_search import MAX_FOUND, ToolIndex, ToolSearch, stem, words
from ipymcp.names import model_name
from ipymcp.protocol.types import encode

FIXTURE = Path(__file__).parent.parent / "fixtures" / "tools.json"


def tool(name: str, description: str = "", arguments: str = "", title: str = "") -> Declaration:
    server, _, own = name.partition(".")
    schema: Any = {"type": "object", "properties": {each: {"type": "string"} for each in arguments.split()}}
    text = f"[{server}] {description}"
    return Declaration(model_name(server, own), server, own, text, encode(schema), title=title)


def catalog() -> tuple[list[Declaration], dict[str, tuple[str, str]]]:
    """The tools of sixteen servers, and the servers' titles."""
    servers = json.loads(FIXTURE.read_text(encoding="utf-8"))
    tools = [tool(f"{server}.{name}", *texts) for server, one in servers.items() for name, *texts in one["tools"]]
    return tools, {server: (one["title"], "") for server, one in servers.items()}


TOOLS, SERVERS = catalog()
INDEX = ToolIndex(TOOLS, SERVERS)

OWN_WORDS = """
list the files in a directory | filesystem.list_directory filesystem.list_directory_with_sizes filesystem.directory_tree
read a text file | filesystem.read_text_file filesystem.read_file
write a file | filesystem.write_file
edit lines of a file | filesystem.edit_file
search files by pattern | filesystem.search_files
move or rename a file | filesystem.move_file
git commit with a message | git.git_commit
show git log of the repository | git.git_log
create a branch in git | git.git_create_branch
git diff staged changes | git.git_diff_staged
convert time between timezones | time.convert_time
current time in Tokyo | time.get_current_time
fetch a url as markdown | fetch.fetch
create entities in the knowledge graph | memory.create_entities
delete relations from the graph | memory.delete_relations
search nodes of the memory graph | memory.search_nodes
create an Excel workbook | excel.create_workbook
create a pivot table in Excel | excel.create_pivot_table
add conditional formatting to a sheet | excel.add_conditional_format
sort a range of cells | excel.sort_range
merge cells in a worksheet | excel.merge_cells
import a CSV file into a workbook | excel.import_csv
take a screenshot of the page | playwright.browser_take_screenshot chrome-devtools.take_screenshot
click an element in the browser | playwright.browser_click chrome-devtools.click
navigate the browser to a url | playwright.browser_navigate chrome-devtools.navigate_page
fill a form in the browser | playwright.browser_fill_form chrome-devtools.fill_form chrome-devtools.fill
list network requests of the page | playwright.browser_network_requests chrome-devtools.list_network_requests
run a lighthouse audit | chrome-devtools.lighthouse_audit
start a performance trace | chrome-devtools.performance_start_trace
take a heap snapshot | chrome-devtools.take_heapsnapshot
generate a pie chart | chart.generate_pie_chart
generate a word cloud | chart.generate_word_cloud_chart
draw a flow diagram | chart.generate_flow_diagram
sankey chart | chart.generate_sankey_chart
histogram of a column | chart.generate_histogram_chart
search papers on arxiv | arxiv.search_papers arxiv.semantic_search
download a paper from arXiv | arxiv.download_paper
get the abstract of a paper | arxiv.get_abstract
export citations as bibtex | arxiv.export_citations
search AWS documentation | awsdocs.search_documentation
read an AWS documentation page | awsdocs.read_documentation awsdocs.read_sections
list tables of the DuckDB database | motherduck.list_tables
execute SQL on MotherDuck | motherduck.execute_query
describe an SQLite table | sqlite.describe_table
create a table in SQLite | sqlite.create_table
query penguins | demo.query
echo a message | everything.echo demo.echo
get environment variables of the server | everything.get-env
rename a worksheet | excel.rename_sheet
export a sheet as csv | excel.export_csv
handle a dialog in the browser | playwright.browser_handle_dialog chrome-devtools.handle_dialog
upload a file in the browser | playwright.browser_file_upload chrome-devtools.upload_file
press a key | playwright.browser_press_key chrome-devtools.press_key
drag and drop in the browser | playwright.browser_drag chrome-devtools.drag playwright.browser_drop
console messages of the web page | playwright.browser_console_messages chrome-devtools.list_console_messages
think step by step about a problem | thinking.sequentialthinking
network graph of nodes and edges | chart.generate_network_graph
box plot | chart.generate_boxplot_chart
checkout a branch | git.git_checkout
set a defined name in the workbook | excel.set_defined_name
"""
OTHER_WORDS = """
what is in this folder | filesystem.list_directory filesystem.list_directory_with_sizes filesystem.directory_tree
show me the contents of notes.txt | filesystem.read_text_file filesystem.read_file
save some text to disk | filesystem.write_file
replace a line in the source code | filesystem.edit_file
make a new folder | filesystem.create_directory
find documents whose title contains invoice | filesystem.search_files
give the document another title on disk | filesystem.move_file
when was it last modified and how big is it | filesystem.get_file_info
open an image from disk | filesystem.read_media_file
which places on disk may I access | filesystem.list_allowed_directories
record my changes in version control | git.git_commit
what did I change since the last commit | git.git_diff_unstaged git.git_diff git.git_status git.git_diff_staged
history of the repository | git.git_log
undo staging | git.git_reset
stage files for the next revision | git.git_add
switch to another line of development | git.git_checkout
what o'clock is it in Berlin | time.get_current_time
download a web page | fetch.fetch
remember that Anna works at Google | memory.add_observations memory.create_entities memory.create_relations
forget what you know about this person | memory.delete_entities memory.delete_observations
what do you know about me | memory.search_nodes memory.read_graph memory.open_nodes
new empty spreadsheet file | excel.create_workbook
put values into a block of the spreadsheet | excel.write_range
highlight all values above 100 in red | excel.add_conditional_format
drop duplicate or blank lines from the spreadsheet | excel.delete_rows_or_columns
put a picture on the worksheet | excel.insert_image
attach a comment to a cell | excel.set_note
dropdown with permitted values in a column | excel.add_data_validation
find the input that gives a wanted result | excel.goal_seek
which cells does this calculation depend on | excel.trace_formula
macro source code | excel.read_vba
substitute a term everywhere in the spreadsheet | excel.replace_cells
tiny charts within cells | excel.add_sparklines
capture an image of the website | playwright.browser_take_screenshot chrome-devtools.take_screenshot
go to a website | playwright.browser_navigate chrome-devtools.navigate_page
execute javascript | playwright.browser_evaluate chrome-devtools.evaluate_script
enter my address into an input field | playwright.browser_type chrome-devtools.type_text chrome-devtools.fill
push a button on the website | playwright.browser_click chrome-devtools.click playwright.browser_press_key
the previous site in history | playwright.browser_navigate_back chrome-devtools.navigate_page
choose an item of a dropdown | playwright.browser_select_option
http traffic of the website | playwright.browser_network_requests chrome-devtools.list_network_requests
errors logged by javascript | playwright.browser_console_messages chrome-devtools.list_console_messages
pretend to be a mobile phone | chrome-devtools.emulate playwright.browser_emulate_media
memory leaks of the website | chrome-devtools.take_heapsnapshot
why is my site slow | chrome-devtools.performance_start_trace chrome-devtools.performance_analyze_insight
record a video of the browser | chrome-devtools.screencast_start
change the size of the viewport | playwright.browser_resize chrome-devtools.resize_page
dark mode | playwright.browser_emulate_media chrome-devtools.emulate
share of each part of a total | chart.generate_pie_chart chart.generate_treemap_chart
correlation of two variables as points | chart.generate_scatter_chart
hierarchy of employees in a company | chart.generate_organization_chart
root cause analysis | chart.generate_fishbone_diagram
overlap of sets | chart.generate_venn_chart
stages of sales conversion | chart.generate_funnel_chart
plot the trend over time | chart.generate_line_chart chart.generate_area_chart
brainstorm ideas as a tree | chart.generate_mind_map
show a route between cities | chart.generate_path_map
scientific articles about transformers | arxiv.search_papers arxiv.semantic_search
summary of a publication | arxiv.get_abstract
notify me of new publications on a subject | arxiv.watch_topic arxiv.check_alerts
who cites this article | arxiv.citation_graph
bibliography in bibtex | arxiv.export_citations
how do I configure S3 buckets | awsdocs.search_documentation awsdocs.read_documentation awsdocs.read_sections
what fields does this relation of the database have | sqlite.describe_table motherduck.list_columns
run a select statement | sqlite.read_query motherduck.execute_query
insert rows into the database | sqlite.write_query motherduck.execute_query
which datasets are there in the warehouse | motherduck.list_databases motherduck.list_tables sqlite.list_tables
repeat what I say | everything.echo demo.echo
add two numbers | everything.get-sum
compress a download | everything.gzip-file-as-resource
reason carefully through a hard question | thinking.sequentialthinking
draw a figure of these numbers | demo.plot chart.generate_bar_chart chart.generate_column_chart
hide the contents of these cells but keep them formatted | excel.clear_range
"""


def queries(text: str, half: int) -> list[tuple[str, set[str]]]:
    """Every second query, with the tools of which one has to be found."""
    found: list[tuple[str, set[str]]] = []
    for line in text.strip().splitlines()[half::2]:
        query, _, wanted = line.partition(" | ")
        found.append((query, {model_name(*each.split(".", 1)) for each in wanted.split()}))
    return found


def recall(asked: list[tuple[str, set[str]]]) -> float:
    return sum(not wanted.isdisjoint(INDEX.search(query)) for query, wanted in asked) / len(asked)


def test_the_queries_name_existing_tools_and_paraphrases_avoid_their_words() -> None:
    names = {one.name for one in TOOLS}
    assert len(TOOLS) > 200
    for half in (0, 1):
        for query, wanted in [*queries(OWN_WORDS, half), *queries(OTHER_WORDS, half)]:
            assert wanted <= names, query
        for query, wanted in queries(OTHER_WORDS, half):
            assert set(words(query)).isdisjoint(words(" ".join(name.partition("__")[2] for name in wanted))), query
    assert sum(len(queries(text, half)) for text in (OWN_WORDS, OTHER_WORDS) for half in (0, 1)) >= 120


@pytest.mark.parametrize("half", [0, 1], ids=["tuned on", "held back"])
def test_tools_are_found_by_their_own_words_and_by_others(half: int) -> None:
    own, other = queries(OWN_WORDS, half), queries(OTHER_WORDS, half)
    assert recall(own) >= 0.97
    assert recall(other) >= 0.75
    assert recall([*own, *other]) >= 0.88


def test_a_tool_is_found_by_its_name_title_arguments_and_server() -> None:
    tools = [
        tool("a.one", "Does it.", "freeBusyCalendar"),
        tool("a.two", "Does it.", title="Get Weather"),
        tool("gcal.three", "Does it."),
        tool("b.runShellCommand", "Does it."),
        tool("b.other", "Does it."),
    ]
    index = ToolIndex(tools, {"gcal": ("Google Agenda", ""), "b": ("", "Handles invoices.")})
    assert index.search("busy", 1) == ["a__one"]
    assert index.search("weather", 1) == ["a__two"]
    assert index.search("google", 1) == ["gcal__three"]
    assert index.search("shell", 1) == ["b__runShellCommand"]
    assert set(index.search("invoices", 2)) == {"b__runShellCommand", "b__other"}


def test_words_are_found_in_other_forms_abbreviated_joined_and_misspelled() -> None:
    index = ToolIndex([tool("a.createRepository"), tool("a.get-freebusy"), tool("a.delete_worklog"), tool("a.log")], {})
    assert index.search("creating repositories", 1) == ["a__createRepository"]
    assert index.search("repo", 1) == ["a__createRepository"]
    assert index.search("repositroy", 1) == ["a__createRepository"]
    assert index.search("free busy", 1) == ["a__get-freebusy"]
    assert words("getHTTPResponse the_files of ÄRGER") == ["get", "http", "respons", "file", "ärger"]
    assert {stem(each) for each in ("delete", "deleting", "deleted", "deletes", "deletion")} == {"delet"}


def test_a_word_with_which_a_servers_name_begins_does_not_find_all_of_its_tools() -> None:
    tools = [
        *(tool(f"circleci.job{number}", "Runs a job.") for number in range(9)),
        tool("chart.pie", "Draw a circle."),
    ]
    tools += [tool(f"everything.echo{number}", "Echo.") for number in range(9)]
    index = ToolIndex(tools, {})
    assert index.search("shares as a circle") == ["chart__pie"]
    assert index.search("circleci job")[0].startswith("circleci__")
    assert index.search("draw everything") == ["chart__pie"]


def test_everyday_words_find_what_they_mean() -> None:
    means = {
        "rain on Sunday": "a.get_weather",
        "how high is the hill": "a.elevation",
        "tick it off": "a.complete_task",
        "defer it until Monday": "a.snooze_reminder",
        "do it nightly": "a.create_schedule",
        "organigram": "a.organization_chart",
        "set up a videoconference": "a.create_online_meeting",
    }
    index = ToolIndex([tool(name) for name in means.values()], {})
    assert {query: index.search(query, 1) for query in means} == {
        query: [name.replace(".", "__")] for query, name in means.items()
    }


def test_a_phrase_with_a_word_that_is_ignored_elsewhere_is_one_term() -> None:
    means = {
        "turn on the lamp": "a.activate_lamp",
        "turning the radio on": "a.turn_on_radio",
        "disable the alarm": "a.turn_off_alarm",
        "check off milk": "a.complete_purchase",
        "set up a channel": "a.create_channel",
        "make a folder": "a.set_up_folder",
        "look up a word": "a.view_word",
        "log in": "a.authenticate",
        "signing out": "a.logout",
        "roll out the new build": "a.deploy_build",
        "out of office": "a.automatic_reply",
        "to-do": "a.add_task",
        "an e-mail to Anna": "a.compose_message",
    }
    index = ToolIndex([tool(name) for name in means.values()], {})

    assert {query: index.search(query, 1) for query in means} == {
        query: [name.replace(".", "__")] for query, name in means.items()
    }
    assert words("turnOnLight, turn it on") == ["turn", "turn_on", "light", "turn"]
    assert ToolIndex([tool("a.turn_page"), tool("a.set_value")], {}).search("set up, turn on") == []


def test_words_of_any_script_are_found() -> None:
    index = ToolIndex([*TOOLS, tool("w.now", "Погода в городе.")], {})
    assert index.search("погода") == ["w__now"]


def test_a_tool_with_none_of_the_words_is_not_found() -> None:
    for query in ("", "   ", "zxqj", "the of", "?" * 10_000):
        assert INDEX.search(query) == []
    assert ToolIndex([], {}).search("file") == []


def finder(tools: list[Declaration], most: int = 126) -> ToolSearch:
    return ToolSearch(lambda: tools, lambda: SERVERS, DeclarationCache().index, most)


def test_several_queries_share_the_places() -> None:
    search = finder(TOOLS)
    found = search.find(["git commit", "pie chart"])
    assert found[:2] == ["git__git_commit", "chart__generate_pie_chart"]
    assert len(found) == len(set(found)) == MAX_FOUND


def test_a_new_tool_is_found() -> None:
    tools = [tool("a.one", "A file.")]
    search = finder(tools)
    assert search.find(["weather"]) == []
    tools.append(tool("a.weather"))
    assert search.find(["weather"]) == ["a__weather"]


def test_the_description_names_the_servers() -> None:
    tools = [tool("git.log"), tool("other.x"), tool("git.show")]
    assert finder(tools).description() == (
        "Find tools by what they do; what is found can be called from then on. Servers: git (mcp-git), other."
    )


@pytest.mark.timed
def test_two_thousand_tools_are_searched_in_ten_milliseconds() -> None:
    tools = [
        tool(f"{one.server}{copy}.{one.tool}", one.description, " ".join(one.schema["properties"]))
        for copy in range(10)
        for one in TOOLS
    ]
    search = finder(tools)
    search.find(["file"])  # makes the index
    asked = [query for half in (0, 1) for query, _ in queries(OTHER_WORDS, half)]
    began = time.process_time()
    for query in asked:
        search.find([query])
    assert len(tools) > 2_000
    assert (time.process_time() - began) / len(asked) < 0.010
