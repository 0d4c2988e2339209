"""The documents of this repository, and the blocks of code in them."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


def documents() -> list[Path]:
    """Every Markdown file that a reader is pointed to."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "infra").glob("*.md")]
    return sorted(found)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the other words of its fence, and the paragraph before it."""

    page: Path
    line: int
    language: str
    words: tuple[str, ...]
    text: str
    before: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


_FENCED = re.compile(r"^```(\S*)([^\n]*)\n(.*?)^```[ ]*$", re.MULTILINE | re.DOTALL)


def blocks(page: Path, *languages: str) -> list[Block]:
    """The page's blocks in these languages, in order; in any, when none is given."""
    text = page.read_text("utf-8")
    return [
        Block(
            page=page,
            line=text.count("\n", 0, found.start()) + 1,
            language=found[1],
            words=tuple(found[2].split()),
            text=found[3],
            before=text[: found.start()].rstrip().rpartition("\n\n")[2],
        )
        for found in _FENCED.finditer(text)
        if not languages or found[1] in languages
    ]
