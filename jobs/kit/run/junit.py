"""The report as JUnit XML, for CI systems: a test suite for each custom resource, with a test case for each object."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO

from junitparser import Failure, JUnitXml, Skipped, TestCase, TestSuite

from jobs.kit.run.results import UNCHANGED, is_reported
from jobs.kit.run.rows import details, join_names, word, worst_first
from jobs.kit.values.model import Outcome, Result, RunOptions, Severity
from jobs.kit.values.text import brief


def to_xml(job: str, results: Sequence[Result], options: RunOptions) -> str:
    """Return the results as JUnit XML. A finding about several custom resources is in the test suite of each.

    All text is escaped, because XML has no form for most control characters: https://www.w3.org/TR/xml/#charsets
    """
    suites: dict[str, dict[str, list[Result]]] = {}
    for result in results:
        for subject in result.finding.subjects or ("",):
            suites.setdefault(subject, {}).setdefault(brief(str(result.finding.object)), []).append(result)
    document = JUnitXml(job)
    for subject, about in sorted(suites.items()):
        suite = TestSuite(join_names([subject] if subject else []))
        suite.extend([_test_case(suite.name, name, about[name], options) for name in sorted(about)])
        document.append(suite)
    document.update_statistics()
    output = BytesIO()
    document.write(output, pretty=True)
    return output.getvalue().decode().replace("\t", "  ")  # all tabs are indentation


def _test_case(suite: str, name: str, results: Sequence[Result], options: RunOptions) -> TestCase:
    """Return the test case of an object: a failure if the report has findings about it that the run did not resolve."""
    case = TestCase(name, suite)
    reported = [each for each in worst_first(results) if is_reported(each, options)]
    resolved = [each for each in reported if each.outcome is Outcome.DONE]
    if failed := [each for each in reported if each not in resolved and each.finding.severity is not Severity.INFO]:
        failure = Failure(brief(f"{word(failed[0])}: {failed[0].reason}"), failed[0].finding.code)
        failure.text = _text(failed, options)
        case.append(failure)
    elif skipped := [each for each in results if each.finding.severity is Severity.INFO and word(each) != UNCHANGED]:
        case.append(Skipped(brief(f"{word(skipped[0])}: {skipped[0].reason}")))
    if resolved:
        case.system_out = _text(resolved, options)
    return case


def _text(results: Sequence[Result], options: RunOptions) -> str:
    parts = [[f"{each.finding.severity.value}: {word(each)}", *details(each, options)] for each in results]
    return "\n".join(line for part in parts for line in part)
