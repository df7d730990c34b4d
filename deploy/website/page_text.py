"""Reads the pages of docs/ as GitHub does: links and pictures from outside docs/, and the indentation of lists.

A hook of MkDocs. A link to a file outside docs/ leads to the public address of the repository's files,
`extra.repository_files` in mkdocs.yml. Without an address it becomes the path of the file.
"""

import posixpath
import re
from pathlib import Path
from xml.etree.ElementTree import Element, SubElement

from list_indentation import widened
from markdown import Markdown
from markdown.extensions import Extension
from markdown.treeprocessors import Treeprocessor
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
COPIES = "assets/repository"
"""The folder of the site that holds the pictures from outside docs/."""
PICTURE = re.compile(r"!\[[^\]]*\]\(([^)#\s]+)\)")
BEFORE_MKDOCS = 10
"""MkDocs resolves links to pages with priority 0, after this."""


class RepositoryLinks(Treeprocessor):
    """Replaces the links and pictures of one page whose targets are outside docs/."""

    def __init__(self, config: MkDocsConfig) -> None:
        """`page` is the source path of the page that is converted next."""
        super().__init__()
        self.config = config
        self.page = ""

    def run(self, root: Element) -> None:
        """Change the elements in place."""
        for element in list(root.iter()):
            attribute = {"a": "href", "img": "src"}.get(element.tag)
            target = element.get(attribute, "") if attribute else ""
            path, _, anchor = target.partition("#")
            inside = outside_docs(self.page, path)
            if not inside:
                continue
            if element.tag == "img":
                element.set("src", posixpath.relpath(f"{COPIES}/{inside}", posixpath.dirname(self.page) or "."))
            elif address := self.config.extra["repository_files"]:
                element.set("href", f"{address.rstrip('/')}/{inside}" + (f"#{anchor}" if anchor else ""))
            else:
                show_path(element, inside)


def outside_docs(page: str, target: str) -> str:
    """The path of a link's target from the top of the repository; empty unless it is an existing file outside docs/."""
    if not target or re.match(r"[a-z]+:|/", target):
        return ""
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), target))
    return path if not path.startswith("docs/") and (ROOT / path).exists() else ""


def show_path(link: Element, path: str) -> None:
    """Replace a link with its label and the path; a label that is the end of the path is shown once."""
    label = "".join(link.itertext())
    del link.attrib["href"]
    if f"/{path}".endswith((f"/{label}", f"/{label}.md", "/" + label.replace(".", "/"))):
        for child in list(link):
            link.remove(child)
        link.tag = "code"
        link.set("title", path)
        link.text = path if label == label.upper() else label
    else:
        link.tag = "span"
        last = SubElement(link, "code")
        last.text = path
        before, last.tail = " (", ")"
        if len(link) > 1:
            link[-2].tail = (link[-2].tail or "") + before
        else:
            link.text = (link.text or "") + before


class _Extension(Extension):
    def __init__(self, links: RepositoryLinks) -> None:
        super().__init__()
        self.links = links

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802 - the name that Markdown calls
        md.treeprocessors.register(self.links, "repository_links", BEFORE_MKDOCS)


_links: list[RepositoryLinks] = []


def on_config(config: MkDocsConfig) -> None:
    """Add the replacement to the conversion of Markdown."""
    _links[:] = [RepositoryLinks(config)]
    config.markdown_extensions.append(_Extension(_links[0]))  # type: ignore[arg-type]


@event_priority(100)  # before the plugin that checks links notes the files
def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pictures from outside docs/ that pages show."""
    for page in files.documentation_pages():
        for target in PICTURE.findall(page.content_string):
            inside = outside_docs(page.src_uri, target)
            if inside and files.get_file_from_path(f"{COPIES}/{inside}") is None:
                files.append(File.generated(config, f"{COPIES}/{inside}", abs_src_path=str(ROOT / inside)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Remember which page is converted next, and widen its lists."""
    _links[0].page = page.file.src_uri
    return widened(markdown)
