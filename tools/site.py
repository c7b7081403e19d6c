"""Add pages from outside of docs/ to the site, and make links of the repository work there: hooks of mkdocs.yml.

https://www.mkdocs.org/user-guide/configuration/#hooks
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = Path(__file__).parent.parent
# Files outside of docs/ that are pages of the site, by their path in the repository.
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security-policy.md",
    "charts/kube-chores/README.md": "helm-values.md",
    "kubesandbox/README.md": "kubesandbox.md",
}
BLOCK = re.compile(r"(^ *```.*?^ *```$)", re.M | re.S)
# A link whose text may have code, or code, which has no links.
LINK = re.compile(r"(?<!!)\[((?:`[^`]*`|[^\]`])+)\]\(([^)\s#:]*)(#[^)\s]*)?\)|`[^`\n]+`")
COMMENT = re.compile(r"^ *<!--.*?-->\n", re.M | re.S)
LOADS = r"<(?:script|img|iframe|source|link)\b(?![^>]*canonical)[^>]* (?:src|href)="
FOREIGN = re.compile(LOADS + r'"?(?:https?:)?//[^>]*>')


def on_files(files: Any, config: Any) -> Any:
    """Add the pages from outside of docs/."""
    for path, name in PAGES.items():
        if (ROOT / path).exists():
            files.append(File.generated(config, name, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Remove comments, and turn links of the repository into links of the site."""
    source = next((path for path, name in PAGES.items() if name == page.file.src_uri), f"docs/{page.file.src_uri}")
    folder, here = posixpath.dirname(source), posixpath.dirname(page.file.src_uri)

    def on_the_site(link: re.Match[str]) -> str:
        text, target, anchor = link[1], link[2], link[3] or ""
        if not target:
            return link[0]
        path = posixpath.normpath(posixpath.join(folder, target))
        name = PAGES.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else "")
        if name and (name in PAGES.values() or (ROOT / path).is_file()):
            return f"[{text}]({posixpath.relpath(name, here or '.')}{anchor})"
        if not (ROOT / path).exists():
            return link[0]  # mkdocs reports it
        return text if f"`{path}`" in text else f"{text} (`{path}`)"

    parts = BLOCK.split(markdown)  # at odd places: blocks of code, which stay as they are
    parts[::2] = [LINK.sub(on_the_site, COMMENT.sub("\n", part)) for part in parts[::2]]
    return "".join(parts)


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Fail if a page loads something from another server."""
    if found := FOREIGN.search(output):
        raise PluginError(f"{page.file.src_uri} loads from another server: {found[0]}")
    return output
