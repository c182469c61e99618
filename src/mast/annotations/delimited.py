"""Read text tables with any usual encoding, line ending, delimiter and decimal sign; write UTF-8 with decimal points."""

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
from mast.storage import atomic_write, open_binary
from mast.wording import counted

MISSING_VALUES = frozenset({"", "na", "n/a", "nan", "none", "null"})
"""Texts that programs write into a number's cell for a missing value."""

MAX_DECIMALS = 400
"""Smaller numbers than 10 ** -MAX_DECIMALS are read as 0; floats end at 324 decimals."""

UTF16_BYTE_ORDER_MARKS = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True, slots=True)
class Table:
    """Header and rows, each with its line number; cells are stripped, and short rows are padded with empty cells."""

    location: str
    header: tuple[str, ...]
    rows: tuple[tuple[int, tuple[str, ...]], ...]

    def where(self, line: int) -> str:
        """Return the file and line number, for messages."""
        return f"{self.location}, line {line}"


def read_text(location: str) -> str:
    """Read a text file: UTF-8 with or without a byte order mark, UTF-16 with one, else Windows-1252."""
    try:
        with open_binary(location) as file:
            data = file.read()
    except FileNotFoundError:
        raise AnnotationError(f"{location}: there is no such file.") from None
    except OSError as error:
        raise AnnotationError(f"{location}: cannot be read: {error.strerror or error}.") from None
    return decode_text(data)


def decode_text(data: bytes) -> str:
    """Decode the bytes of a file; never fails, because Latin-1 decodes any byte."""
    if data.startswith(UTF16_BYTE_ORDER_MARKS):
        return data.decode("utf-16", errors="replace")
    for encoding in ("utf-8-sig", "cp1252"):
        try:
            return data.decode(encoding)
        except UnicodeDecodeError:
            continue
    return data.decode("latin-1")


def read_table(location: str, delimiter: str | None = None) -> Table:
    """Read a table with a header line; tab-separated tables have no quotes, and the default delimiter is the header's."""
    text = read_text(location)
    first = re.split(r"[\r\n]", text.lstrip(), maxsplit=1)[0]
    if not first:
        raise AnnotationError(
            f"{location}: the file is empty; a table needs at least a line of column names."
        )
    separator = delimiter or max(",;\t", key=first.count)
    reader = csv.reader(
        io.StringIO(text, newline=""),
        delimiter=separator,
        quoting=csv.QUOTE_NONE if separator == "\t" else csv.QUOTE_MINIMAL,
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
            f"{location}: all cells are empty; a table needs at least a line of column names."
        )
    header = _distinct(lines[0][1])
    return Table(
        location, header, tuple(_fit_cells(location, header, line, cells) for line, cells in lines[1:])
    )


def _distinct(names: Sequence[str]) -> tuple[str, ...]:
    """Return unique column names: number the empty ones, and add the column number to repeated ones."""
    seen: list[str] = []
    for index, name in enumerate(names, start=1):
        unique = name or f"column {index}"
        seen.append(unique if unique not in seen else f"{unique} ({index})")
    return tuple(seen)


def _fit_cells(
    location: str, header: Sequence[str], line: int, cells: tuple[str, ...]
) -> tuple[int, tuple[str, ...]]:
    if any(cells[len(header) :]):
        raise AnnotationError(
            f"{location}, line {line}: {counted(len(cells), 'cell')} under {counted(len(header), 'column name')}. "
            "Remove extra delimiters, or quote text that contains one."
        )
    return line, (cells + ("",) * len(header))[: len(header)]


def format_counts(title: str, counts: Counter[str]) -> list[str]:
    """Return a title and a line for each count, largest first; an empty list if there are no counts."""
    return [title, *(f"  {count:,} x {name}" for name, count in counts.most_common())] if counts else []


def is_number(text: str) -> bool:
    """Return True if a cell holds a number or a missing value."""
    try:
        decimal(text, "", "")
    except AnnotationError:
        return False
    return True


def decimal(text: str, where: str, name: str) -> Decimal | None:
    """Parse a number with a decimal point or comma; None if the value is missing."""
    if text.strip().lower() in MISSING_VALUES:
        return None
    try:
        value = Decimal(text.strip() if "." in text else text.strip().replace(",", "."))
    except InvalidOperation:
        value = Decimal("nan")
    if not math.isfinite(value):
        raise AnnotationError(f"{where}: {name} is {text!r}, which is not a number. Write it like 1.5.")
    return value if value.adjusted() > -MAX_DECIMALS else Decimal(0)


def number(text: str, where: str, name: str) -> float | None:
    """Parse a number as a float; None if the value is missing."""
    value = decimal(text, where, name)
    return None if value is None else float(value)


def format_number(value: float | Decimal | None) -> str:
    """Format a number with all its digits and no exponent, so that it parses to the same float; None is empty."""
    if value is None:
        return ""
    exact = value if isinstance(value, Decimal) else Decimal(repr(float(value)))
    text = format(exact, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def write_table(
    location: str, header: Sequence[str], rows: Iterable[Sequence[str]], delimiter: str = ","
) -> None:
    """Write a table as UTF-8; cells of a tab-separated table must not contain tabs or line breaks."""
    with open_table(location, header, delimiter) as add:
        add(rows)


@contextmanager
def open_table(
    location: str, header: Sequence[str], delimiter: str = ","
) -> Iterator[Callable[[Iterable[Sequence[str]]], None]]:
    """Open a table for writing and yield a function that appends rows; the file appears when it is complete."""
    with atomic_write(location) as file:
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
    """Return the last part of a path with slashes or backslashes."""
    return PurePath(name.replace("\\", "/")).name
