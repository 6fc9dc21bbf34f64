"""Check that what the documentation points at exists: links, anchors, paths and make targets."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parent.parent

# Folders that are made, not written.
_SKIPPED = frozenset({".git", ".venv", ".demo", ".bench", "build", "dist", "node_modules"})

_FENCE = re.compile(r"^(```|~~~).*?^\1[ \t]*$", re.MULTILINE | re.DOTALL)
_CODE_SPAN = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\[[^\]\n]*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
_REFERENCE = re.compile(r"^\[[^\]\n]+\]:\s*<?(\S+?)>?\s*$", re.MULTILINE)
_HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*$", re.MULTILINE)
_SCHEME = re.compile(r"^[a-z][a-z0-9+.-]*:", re.IGNORECASE)
_PATH = re.compile(r"^\.?[A-Za-z0-9_][\w.-]*(?:/[\w.-]+)*/?$")
_MAKE = re.compile(r"(?:^|[\s;&|(`$])make ([a-z][a-z-]*)\b")
_TARGET = re.compile(r"^([a-z][a-z-]*):", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing a page points at that is not there."""

    page: Path
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.text}"


def anchors(markdown: str) -> frozenset[str]:
    """Return the anchors that the headings of a page make, in the form GitHub gives them.

    Args:
        markdown: The text of the page.

    Returns:
        Each heading in lower case with spaces as hyphens; a repeated one carries ``-1``, ``-2``, …
    """
    seen: dict[str, int] = {}
    found = set()
    for heading in _HEADING.findall(_FENCE.sub("", markdown)):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        anchor = re.sub(r"[^\w\- ]", "", words).strip().replace(" ", "-")
        count = seen.get(anchor, 0)
        seen[anchor] = count + 1
        found.add(f"{anchor}-{count}" if count else anchor)
    return frozenset(found)


def check_page(root: Path, page: Path, targets: frozenset[str]) -> Iterator[Fault]:
    """Yield the faults of one Markdown page.

    Args:
        root: The root of the repository.
        page: The page, below ``root``.
        targets: The targets of the Makefile.

    Yields:
        One fault for each missing file, anchor, path or target.
    """
    markdown = page.read_text(encoding="utf-8")
    name = page.relative_to(root)
    # Blanked, not cut, so that offsets still tell the line.
    prose = _FENCE.sub(lambda fence: re.sub(r"[^\n]", " ", fence.group()), markdown)
    without_code = _CODE_SPAN.sub(lambda span: " " * len(span.group()), prose)

    def fault(offset: int, text: str) -> Fault:
        return Fault(name, markdown.count("\n", 0, offset) + 1, text)

    for pattern in (_LINK, _REFERENCE):
        for match in pattern.finditer(without_code):
            problem = _check_link(root, page, match.group(1))
            if problem:
                yield fault(match.start(), problem)
    for match in _CODE_SPAN.finditer(prose):
        if _is_missing_path(root, page, match.group(1)):
            yield fault(match.start(), f"`{match.group(1)}` does not exist")
    for match in _MAKE.finditer(_code_only(markdown)):
        if match.group(1) not in targets:
            yield fault(match.start(1), f"the Makefile has no target {match.group(1)!r}")


def _code_only(markdown: str) -> str:
    """Return the text with everything outside fences and code spans blanked."""
    kept = bytearray(len(markdown))
    for pattern in (_FENCE, _CODE_SPAN):
        for match in pattern.finditer(markdown):
            kept[match.start() : match.end()] = b"\x01" * (match.end() - match.start())
    return "".join(
        character if keep or character == "\n" else " "
        for character, keep in zip(markdown, kept, strict=True)
    )


def _check_link(root: Path, page: Path, link: str) -> str | None:
    if _SCHEME.match(link) or link.startswith("//"):
        return None
    target, _, anchor = unquote(link).partition("#")
    base = root if target.startswith("/") else page.parent
    path = base / target.lstrip("/") if target else page
    if not path.exists():
        return f"{link} does not exist"
    if anchor and path.suffix == ".md" and anchor not in anchors(path.read_text(encoding="utf-8")):
        return f"{path.name} has no heading for #{anchor}"
    return None


def _is_missing_path(root: Path, page: Path, code: str) -> bool:
    """Tell whether a code span names a path of this repository that is not there.

    Only a span that starts with a folder of the repository is taken for such a path, so that an
    object key, a URL or a fraction is not.
    """
    if "/" not in code or not _PATH.match(code):
        return False
    top = code.split("/", 1)[0]
    if top in _SKIPPED or not (root / top).is_dir():
        return False
    return not ((root / code).exists() or (page.parent / code).exists())


def pages(root: Path) -> Iterator[Path]:
    """Yield the Markdown files of the repository, sorted by path."""
    for path in sorted(root.rglob("*.md")):
        parts = path.relative_to(root).parts
        if not any(part in _SKIPPED or part.endswith("_cache") for part in parts):
            yield path


def check(root: Path) -> list[Fault]:
    """Return every fault in the Markdown pages of the repository.

    Args:
        root: The root of the repository.

    Returns:
        The faults in the order of pages and lines.
    """
    targets = frozenset(_TARGET.findall((root / "Makefile").read_text(encoding="utf-8")))
    found = [fault for page in pages(root) for fault in check_page(root, page, targets)]
    return sorted(found, key=lambda fault: (fault.page, fault.line))


def main() -> int:
    """Print every fault and return 1 if there is one, else 0."""
    faults = check(ROOT)
    for fault in faults:
        print(fault, file=sys.stderr)
    count = sum(1 for _ in pages(ROOT))
    print(f"{count} pages checked, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
