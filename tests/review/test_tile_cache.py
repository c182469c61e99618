"""Cached tiles: in memory and on disk, within the limits."""

from pathlib import Path

from mast.review.web.tile_cache import TileCache, cache_folder


def test_an_unknown_tile_is_not_cached(tmp_path):
    assert TileCache(tmp_path / "none").get("a") is None


def test_a_tile_is_cached_also_for_the_next_server(tmp_path):
    TileCache(tmp_path).put("a", b"tile")
    again = TileCache(tmp_path)
    assert again.get("a") == b"tile"
    for file in tmp_path.iterdir():
        file.unlink()
    assert again.get("a") == b"tile"  # from memory


def test_memory_keeps_the_last_used_tiles_within_its_limit(tmp_path):
    cache = TileCache(tmp_path / "file" / "below", memory_bytes=20)
    (tmp_path / "file").write_bytes(b"a file")  # so that no folder can be created
    cache.put("a", b"x" * 10)
    cache.put("b", b"y" * 10)
    assert cache.get("a") == b"x" * 10
    cache.put("c", b"z" * 10)
    assert cache.get("a") and cache.get("c") and cache.get("b") is None


def test_the_folder_stays_within_its_limit(tmp_path):
    cache = TileCache(tmp_path, memory_bytes=1, disk_bytes=100)
    for number in range(50):
        cache.put(str(number), b"x" * 10)
        assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= 100
    assert cache.get("49") == b"x" * 10


def test_the_folder_is_in_the_cache_folder_of_the_system(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache/people")
    assert cache_folder() == Path("/var/cache/people/mast/tiles")
