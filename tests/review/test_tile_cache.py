"""Pictures that were drawn before: found again in memory and on disk, and never more than the limit."""

from pathlib import Path

from mast.review.tile_cache import TileCache, cache_folder


def test_what_was_never_drawn_is_not_there(tmp_path):
    assert TileCache(tmp_path / "none").get("a") is None


def test_a_picture_is_found_again_also_by_the_next_server(tmp_path):
    TileCache(tmp_path).put("a", b"picture")
    again = TileCache(tmp_path)
    assert again.get("a") == b"picture"
    for file in tmp_path.iterdir():
        file.unlink()
    assert again.get("a") == b"picture"  # from memory


def test_memory_keeps_the_last_used_and_no_more_than_its_limit(tmp_path):
    cache = TileCache(tmp_path / "file" / "below", memory_bytes=20)
    (tmp_path / "file").write_bytes(b"in the way")  # nothing can be written
    cache.put("a", b"x" * 10)
    cache.put("b", b"y" * 10)
    assert cache.get("a") == b"x" * 10
    cache.put("c", b"z" * 10)
    assert cache.get("a") and cache.get("c") and cache.get("b") is None


def test_the_folder_never_grows_far_beyond_its_limit(tmp_path):
    cache = TileCache(tmp_path, memory_bytes=1, disk_bytes=100)
    for number in range(50):
        cache.put(str(number), b"x" * 10)
        assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= 100
    assert cache.get("49") == b"x" * 10


def test_the_folder_is_where_the_system_says(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache/people")
    assert cache_folder() == Path("/var/cache/people/mast/tiles")
