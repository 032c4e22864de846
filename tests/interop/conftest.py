"""The page that a run over all servers writes."""

from collections import defaultdict
from collections.abc import Iterator

import pytest

from tests.interop.candidates import CANDIDATES
from tests.interop.features import FEATURES
from tests.interop.page import PAGE, Row, page


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--write-page", action="store_true", help=f"write {PAGE.name} if all servers are as they should be"
    )


class Report:
    """The outcomes of a run."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self.features: defaultdict[str, list[str]] = defaultdict(list)
        """The names of the features of server-everything that worked, by transport."""

    def page(self) -> str:
        """Write the page.

        Raises:
            AssertionError: A server or a feature failed, or was not run.
        """
        missing = [each.name for each in CANDIDATES if each.name not in self.rows]
        assert not missing, f"the page is not written: no outcome of {', '.join(missing)}"
        assert all(set(names) == set(FEATURES) for names in self.features.values()), "the page is not written"
        return page([self.rows[each.name] for each in CANDIDATES], self.features)


@pytest.fixture(scope="session")
def report(request: pytest.FixtureRequest) -> Iterator[Report]:
    """The outcomes of this run, written to the page at its end if `--write-page` is given."""
    report = Report()
    yield report
    if request.config.getoption("--write-page", default=False):
        PAGE.write_text(report.page())
