"""Strict parser that reads pictures of aligned pairs from HTML: every tag must be known and closed."""

from html.parser import HTMLParser

PAGE_TAGS = {"html", "head", "meta", "title", "style", "body", "h1", "p", "b", "bdi", "section", "a", "header", "main"}
PICTURE_TAGS = {"figure", "div", "svg", "g", "path", "text", "title", "figcaption"}
HOSTILE = [
    "<script>alert(1)</script>",
    "</text></svg><script>alert(2)</script>",
    '"><img/src=x/onerror=alert(3)>',
    "'onmouseover='alert(4)",
    "&lt;b&gt;",
    "{{7*7}}{%raw%}",
    "]]>-->",
    "$x^2$",
]


class Picture:
    """Content of a picture: links, texts of its groups in order, directions, tool tips, caption."""

    def __init__(self):
        self.links: list[tuple[int, int]] = []
        self.groups: list[list[str]] = []
        self.directions: list[str | None] = []
        self.titles: list[str] = []
        self.caption = ""


class PictureParser(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open: list[str] = []
        self.pictures: list[Picture] = []
        self.text = ""

    def handle_starttag(self, tag, attributes):
        names = dict(attributes)
        assert tag in PAGE_TAGS | PICTURE_TAGS, tag
        assert not [name for name in names if name.startswith("on") or name == "src"], names
        assert names.get("href", "#").startswith("#")
        if tag != "meta":
            self.open.append(tag)
        if tag == "figure":
            self.pictures.append(Picture())
        elif tag == "path":
            self.pictures[-1].links.append(tuple(map(int, names["data-link"].split("-"))))
        elif tag == "g":
            self.pictures[-1].groups.append([])
            self.pictures[-1].directions.append(names.get("direction"))
        elif tag == "text":
            self.pictures[-1].groups[-1].append("")
        elif tag == "title" and self.pictures:
            self.pictures[-1].titles.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data
        inside = self.open[-1] if self.open else None
        if inside == "text":
            self.pictures[-1].groups[-1][-1] += data
        elif inside == "title" and self.pictures:
            self.pictures[-1].titles[-1] += data
        elif inside == "figcaption":
            self.pictures[-1].caption += data


def pictures_of(html: str) -> list[Picture]:
    """Return the pictures of a page or a part of it; assert that every tag is closed."""
    parser = PictureParser()
    parser.feed(html)
    parser.close()
    assert parser.open == []
    return parser.pictures


# Indices of a picture's groups of texts: for each side words and marks of NULL.
SOURCE, SOURCE_MARKS, TARGET, TARGET_MARKS = range(1, 5)
