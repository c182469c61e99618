"""Tables as text: any usual encoding, line ending, delimiter and decimal sign in; UTF-8 with points out."""

from __future__ import annotations

import csv
import io
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import PurePath

from mast.errors import AnnotationError
from mast.storage import open_binary, written_whole

NO_VALUE = frozenset({"", "na", "n/a", "nan", "none", "null"})
"""What programs write into a number's cell when there is none."""

FINEST = 400
"""Decimals after the point beyond which a number is nothing; floats end at 324."""

UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True, slots=True)
class Table:
    """A header and its rows, each with its line number; cells are stripped, and short rows filled up."""

    location: str
    header: tuple[str, ...]
    rows: tuple[tuple[int, tuple[str, ...]], ...]

    def where(self, line: int) -> str:
        """A line's place, for messages."""
        return f"{self.location}, line {line}"


def read_text(location: str) -> str:
    """A whole text file: UTF-8 or UTF-16 with or without a mark, else Windows' western encoding."""
    try:
        with open_binary(location) as file:
            data = file.read()
    except FileNotFoundError:
        raise AnnotationError(f"{location}: there is no such file.") from None
    except OSError as error:
        raise AnnotationError(f"{location}: cannot be read: {error.strerror or error}.") from None
    return decode(data)


def decode(data: bytes) -> str:
    """Text of a file's bytes; every byte sequence is some text."""
    if data.startswith(UTF16_MARKS):
        return data.decode("utf-16", errors="replace")
    for encoding in ("utf-8-sig", "cp1252"):
        try:
            return data.decode(encoding)
        except UnicodeDecodeError:
            continue
    return data.decode("latin-1")


def read_table(location: str, delimiter: str | None = None) -> Table:
    """Read a table with a header line; tabs never quote, and without `delimiter` the header tells it."""
    text = read_text(location)
    first = re.split(r"[\r\n]", text.lstrip(), maxsplit=1)[0]
    if not first:
        raise AnnotationError(f"{location}: the file is empty; a table has at least a line of column names.")
    sign = delimiter or max(",;\t", key=first.count)
    reader = csv.reader(
        io.StringIO(text, newline=""),
        delimiter=sign,
        quoting=csv.QUOTE_NONE if sign == "\t" else csv.QUOTE_MINIMAL,
    )
    lines: list[tuple[int, tuple[str, ...]]] = []
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                lines.append((reader.line_num, tuple(cell.strip() for cell in cells)))
    except csv.Error as error:
        raise AnnotationError(f"{location}, line {reader.line_num}: not a table: {error}.") from None
    if not lines:
        raise AnnotationError(
            f"{location}: all cells are empty; a table has at least a line of column names."
        )
    header = _distinct(lines[0][1])
    return Table(location, header, tuple(_fitted(location, header, line, cells) for line, cells in lines[1:]))


def _distinct(names: Sequence[str]) -> tuple[str, ...]:
    """Column names, the nameless numbered and the repeated told apart."""
    seen: list[str] = []
    for index, name in enumerate(names, start=1):
        fresh = name or f"column {index}"
        seen.append(fresh if fresh not in seen else f"{fresh} ({index})")
    return tuple(seen)


def _fitted(
    location: str, header: Sequence[str], line: int, cells: tuple[str, ...]
) -> tuple[int, tuple[str, ...]]:
    if any(cells[len(header) :]):
        raise AnnotationError(
            f"{location}, line {line}: {len(cells)} cells under {len(header)} column names. "
            "Look for a stray delimiter, or put text that holds one into quotes."
        )
    return line, (cells + ("",) * len(header))[: len(header)]


def listed(title: str, counts: Counter[str]) -> list[str]:
    """Lines of an account that tell what was counted, most first; none where nothing was."""
    return [title, *(f"  {count:,} x {what}" for what, count in counts.most_common())] if counts else []


def is_number(text: str) -> bool:
    """Whether a cell holds a number, or says that there is none."""
    try:
        decimal(text, "", "")
    except AnnotationError:
        return False
    return True


def decimal(text: str, where: str, name: str) -> Decimal | None:
    """A cell's number, with a point or a comma; None where the cell says there is none."""
    if text.strip().lower() in NO_VALUE:
        return None
    try:
        value = Decimal(text.strip() if "." in text else text.strip().replace(",", "."))
    except InvalidOperation:
        value = Decimal("nan")
    if not math.isfinite(value):
        raise AnnotationError(f"{where}: {name} is {text!r}, which is no number. Write it like 1.5.")
    return value if value.adjusted() > -FINEST else Decimal(0)


def number(text: str, where: str, name: str) -> float | None:
    """A cell's number as a float."""
    value = decimal(text, where, name)
    return None if value is None else float(value)


def plain(value: float | Decimal | None) -> str:
    """A number in full and without an exponent, so that it reads back as the same float; None is empty."""
    if value is None:
        return ""
    exact = value if isinstance(value, Decimal) else Decimal(repr(float(value)))
    text = format(exact, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def write_table(
    location: str, header: Sequence[str], rows: Iterable[Sequence[str]], delimiter: str = ","
) -> None:
    """Write a table as UTF-8; a tab-separated one must hold no tabs or line breaks in its cells."""
    with open_table(location, header, delimiter) as add:
        add(rows)


@contextmanager
def open_table(
    location: str, header: Sequence[str], delimiter: str = ","
) -> Iterator[Callable[[Iterable[Sequence[str]]], None]]:
    """A table like that of `write_table` that takes rows as they come, and appears when it is complete."""
    with written_whole(location) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")

        def add(rows: Iterable[Sequence[str]]) -> None:
            if delimiter == "\t":
                text.writelines("\t".join(cells) + "\n" for cells in rows)
            else:
                writer.writerows(rows)

        add([header])
        yield add
        text.flush()
        text.detach()


def file_name(name: str) -> str:
    """Last part of a path written with slashes of either kind."""
    return PurePath(name.replace("\\", "/")).name
