from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mast.annotations import FORMATS, read_annotations, write_annotations
from mast.errors import AnnotationError
from tests.annotations.cases import fixed_annotations
from tests.annotations.test_camtrap_dp import WITH_START

DAMAGED_FILE = {
    "raven": "a/x.wav.Table.1.selections.txt",
    "audacity": "a/x.wav.txt",
    "batdetect2": "a/x.wav.json",
    "camtrap-dp": "observations.csv",
}
PIECES = [
    "",
    ",",
    "\t",
    "\n",
    '"',
    "-1",
    "nan",
    "1e400",
    "1e-400",
    "{",
    "]",
    "null",
    "2023",
    "\\",
    "é",
    "\x00",
    "all",
    "..",
]


@pytest.fixture(params=FORMATS)
def written(request, tmp_path):
    """Return a format, the path to read, and the file to damage."""
    original = replace(fixed_annotations(), recordings=WITH_START)
    if request.param in DAMAGED_FILE:
        write_annotations(original, tmp_path / "t", request.param)
        file = tmp_path / "t" / DAMAGED_FILE[request.param]
        return request.param, tmp_path / "t" if request.param == "camtrap-dp" else file, file
    write_annotations(original, tmp_path / "t.txt", request.param)
    return request.param, tmp_path / "t.txt", tmp_path / "t.txt"


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_file_is_read_or_rejected_with_a_message(written, data):
    name, path, file = written
    content = file.read_bytes()
    start = data.draw(st.integers(0, len(content)))
    stop = data.draw(st.integers(start, min(len(content), start + 12)))
    piece = data.draw(st.sampled_from(PIECES).map(str.encode) | st.binary(max_size=6))
    file.write_bytes(content[:start] + piece + content[stop:])
    try:
        read_annotations(path, name)
    except AnnotationError as error:
        assert str(path) in str(error) or "a/" in str(error)
    finally:
        file.write_bytes(content)
