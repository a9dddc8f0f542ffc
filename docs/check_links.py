"""Check that every link inside the built site leads to a file and an anchor: ``python docs/check_links.py FOLDER``."""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """The anchors of a page, and what it links to and shows."""

    def __init__(self, path):
        super().__init__()
        self.anchors, self.links = set(), set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, _tag, attributes):
        """Collect."""
        for name, value in attributes:
            if name in ("id", "name") and value:
                self.anchors.add(value)
            if name in ("href", "src") and value:
                self.links.add(value)


def broken(folder):
    """Name every link that leads nowhere, with the page it stands on."""
    pages = {path.resolve(): Page(path) for path in Path(folder).rglob("*.html")}
    for path, page in sorted(pages.items()):
        for link in sorted(page.links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists():
                yield f"{path.name}: {link} leads to no file"
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                yield f"{path.name}: {link} leads to no anchor"


if __name__ == "__main__":
    missing = list(broken(sys.argv[1]))
    sys.exit("\n".join(missing) if missing else None)
