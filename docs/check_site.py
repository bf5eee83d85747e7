"""Check the site that was built: every link inside leads somewhere, nothing is loaded from a network, and it is small.

    python docs/check_site.py build/site

Links to other sites are checked by their form only, since a build must work without a network.
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

MEGABYTES = 30
HOST = re.compile(r"[a-z0-9-]+(\.[a-z0-9-]+)+(:\d+)?", re.IGNORECASE)
# What a browser fetches by itself, and what it follows when somebody clicks.
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
FOLLOWED = {"a": "href"}
# Relations of <link> that fetch nothing.
NOT_FETCHED = {"canonical", "next", "prev", "search", "index", "author", "license"}


class Page(HTMLParser):
    """Anchors and links of one page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[tuple[str, bool]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what one tag has."""
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        fetched = tag in LOADED and given.get("rel", "").split(" ")[0] not in NOT_FETCHED
        if link := given.get(LOADED.get(tag) or FOLLOWED.get(tag) or ""):
            self.links.append((link, fetched))


def problems_of(site: Path) -> list[str]:
    """List what is wrong with a site."""
    # In _static are templates of the theme.
    paths = [path for path in sorted(site.rglob("*.html")) if path.relative_to(site).parts[0] != "_static"]
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in paths}
    found = []
    for path, page in pages.items():
        name = path.relative_to(site)
        for link, fetched in page.links:
            parts = urlsplit(link)
            if parts.scheme in ("mailto", "data", "javascript"):
                continue
            if parts.scheme or parts.netloc:
                if fetched:
                    found.append(f"{name}: loads {link} from a network")
                elif parts.scheme not in ("http", "https") or not HOST.fullmatch(parts.netloc):
                    found.append(f"{name}: {link} has not the form of a link")
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file():
                found.append(f"{name}: {link} leads nowhere")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                found.append(f"{name}: {link} has no such anchor")
    size = sum(path.stat().st_size for path in site.rglob("*") if path.is_file()) / 1e6
    if size > MEGABYTES:
        found.append(f"the site has {size:.1f} MB, of which {MEGABYTES} are allowed")
    print(f"{len(pages)} pages, {sum(len(page.links) for page in pages.values()):,} links, {size:.1f} MB")
    return found


if __name__ == "__main__":
    if found := problems_of(Path(sys.argv[1]).resolve()):
        sys.exit("\n".join(found))
