"""The page of `chores status -o html`: one file that loads nothing, readable without JavaScript too. Pure."""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from importlib.resources import files
from string import Template
from typing import Any
from xml.etree.ElementTree import Element

from jobs.core.status import sections
from jobs.core.status.elements import badge, element, html
from jobs.core.status.problems import all_clear
from jobs.core.status.runs import clock
from jobs.core.status.timeline import timeline
from jobs.kit.values.text import format_count

Document = Mapping[str, Any]


def page(document: Document) -> str:
    """Return the page as HTML. The document comes from `document()`; its texts may be hostile."""
    style, script = _file("page.css"), _file("page.js")
    return Template(_file("page.html")).substitute(
        style_hash=_hash(style),
        script_hash=_hash(script),
        style=style,
        script=script,
        title=html([element("title", f"{_headline(document)} · {document['namespace']} · kube-chores")]),
        body=html(_body(document)),
        data=_data(sections.matrix(document)),
    )


def _file(name: str) -> str:
    return (files("jobs.core.status") / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _data(value: Any) -> str:
    """Return JSON that cannot end its script element, nor begin a comment in it."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c").replace(">", "\\u003e")


def _headline(document: Document) -> str:
    counts = Counter(each["severity"] for each in document["problems"])
    if not counts:
        return sections.sentence(all_clear(document))
    parts = [f"{counts['critical']} critical"] if counts["critical"] else []
    parts += [format_count("warnings", counts["warning"])] if counts["warning"] else []
    prefix = "The status is unknown; " if document["unknown"] else ""
    return f"{prefix}{format_count('problems', counts.total())}: {', '.join(parts)}"


def _body(document: Document) -> list[Element]:
    made = [
        sections.jobs,
        sections.problems,
        timeline,
        sections.rules,
        sections.mirrors,
        sections.rates,
        sections.deferred,
        sections.notes,
    ]
    parts = [part for each in made if (part := each(document)) is not None]
    links = (element("li", element("a", part[0].text or "", href=f"#{part.get('id')}")) for part in parts)
    navigation = element("nav", element("ul", *links), aria_label="Sections")
    return [_header(document), navigation, element("div", id="filter"), element("main", *parts, id="main")]


def _header(document: Document) -> Element:
    is_clear = not document["unknown"] and not document["partial"]
    worst = document["problems"][:1]  # they are sorted
    state = worst[0]["severity"] if worst else "ok" if is_clear else "not known"
    facts = [
        ("Namespace", document["namespace"]),
        ("Context", document["context"]),
        ("Server", document["server"]),
        ("As of", clock(document["time"])),
        ("Version", document["version"]),
    ]
    listed = (element("div", element("dt", name), element("dd", value)) for name, value in facts if value)
    return element(
        "header", element("h1", "kube-chores"), element("p", badge(state, _headline(document)), class_="headline"),
        element("dl", *listed),
    )  # fmt: skip
