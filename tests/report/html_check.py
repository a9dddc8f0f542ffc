"""A strict reader of our own pages: balanced tags, ids, references, and everything that could be fetched."""

import re
from html.parser import HTMLParser

VOID = {"meta", "link", "br", "hr", "img", "input", "wbr"}
_TAGS = (
    "html head meta title link style body header main section footer nav p h1 h2 div span strong bdi a ul li dl dt dd "
    "figure figcaption table caption thead tbody tr th td svg g path text defs clippath rect use circle tspan"
)
TAGS = frozenset(_TAGS.split())
FETCHING = {"src", "srcset", "data", "poster", "action", "formaction", "background", "ping", "manifest", "xlink:href"}


class Page(HTMLParser):
    """Reads a page and collects what is wrong with it in ``faults``."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.faults: list[str] = []
        self.ids: list[str] = []
        self.references: list[str] = []
        self.headings: list[str] = []
        self.svg_texts: list[str] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(page)
        self.close()
        if self._open:
            self.faults.append(f"left open: {self._open}")
        self.faults += [f"id {name} is used twice" for name in set(self.ids) if self.ids.count(name) > 1]
        self.faults += [f"no element has the id {name}" for name in self.references if name not in self.ids]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._look(tag, attrs)
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if "svg" not in self._open:
            self.faults.append(f"<{tag}/> outside of a drawing")
        self._look(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open.pop() != tag:
            self.faults.append(f"</{tag}> does not close what is open")

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] == "style":
            if re.search(r"url\(|@import|expression|http", data):
                self.faults.append("the style sheet refers to something outside")
            return
        self.text += data
        if self._open and self._open[-1] == "text":
            self.svg_texts.append(data)

    def _look(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in TAGS:
            self.faults.append(f"unexpected <{tag}>")
        if re.fullmatch(r"h[1-6]", tag):
            self.headings.append(tag)
        if tag == "th" and "scope" not in dict(attrs):
            self.faults.append("<th> without scope")
        names = [name for name, _ in attrs]
        if len(set(names)) != len(names):
            self.faults.append(f"<{tag}> names an attribute twice")
        for name, value in attrs:
            self._look_at_attribute(tag, name, value or "")

    def _look_at_attribute(self, tag: str, name: str, value: str) -> None:
        if name == "id":
            self.ids.append(value)
        if name.startswith("on") or name in FETCHING:
            self.faults.append(f"<{tag}> has the attribute {name}")
        if name == "href" and not (value.startswith("#") or (tag == "link" and value == "data:,")):
            self.faults.append(f"<{tag}> refers to {value}")
        if name == "href" and value.startswith("#"):
            self.references.append(value[1:])
        if name in {"aria-labelledby", "for"}:
            self.references += value.split()
        if name in {"style", "clip-path", "fill", "stroke"}:
            self.references += re.findall(r"url\(#([^)]+)\)", value)
            if re.search(r"url\((?!#)", value):
                self.faults.append(f"<{tag}> loads {value}")
