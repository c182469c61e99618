"""Sites from templates, file names and folders."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mast.errors import ConfigError
from mast.recordings.filenames import folder_site, template_site
from mast.recordings.metadata import NamingScheme, read_metadata

PAGE = (Path(__file__).parents[2] / "docs/howto/times-and-sites.md").read_text(encoding="utf-8")
SM4 = "S4A03895_20190522_000000.wav"
GUANO = "Timestamp: 2019-05-22T00:00:00Z\nSite: Cave 7"


@pytest.mark.parametrize(
    ("template", "path", "site"),
    [
        # a folder for each site
        ("{site}/*", "pond/20190522_000000.WAV", "pond"),
        ("{site}/*", "pond/20190522/20190522_000000.WAV", None),
        ("{site}/*", "20190522_000000.WAV", None),
        ("{site}/**", "pond/20190522_000000.WAV", "pond"),
        ("{site}/**", "pond/2019/05/20190522_000000.WAV", "pond"),
        ("*/{site}/*", "2019/pond/a.wav", "pond"),
        ("**/{site}/*", "pond/a.wav", "pond"),
        ("**/{site}/*", "a/b/c/pond/a.wav", "pond"),
        ("cards/{site}-*/*", "cards/pond-2/a.wav", "pond"),
        ("./{site}/*", "pond/a.wav", "pond"),
        (r"{site}\*", "pond/a.wav", "pond"),
        # the site in the file name
        ("{site}_*.wav", SM4, "S4A03895"),
        ("{site}_*.wav", "pond_20190522_000000.WAV", "pond"),
        ("{site}_*.wav", "pond_20190522_000000.flac", None),
        ("{site}_*", "pond_20190522_000000.flac", "pond"),
        ("*_{site}", "20190522_000000_pond.flac", "pond"),
        ("{site}", "pond.wav", "pond"),
        ("{site}", "pond", "pond"),
        ("**/{site}_*.wav", "a/b/pond_1.wav", "pond"),
        # regex characters are literal
        ("[a]+({site})/*", "[a]+(pond)/x.wav", "pond"),
        ("{site}/*", " /x.wav", None),
        ("{site}/*", "Río Frío 3/x.wav", "Río Frío 3"),
    ],
)
def test_a_template_finds_the_site_within_one_folder_or_name(template, path, site):
    assert template_site(path, template) == site


@pytest.mark.parametrize(
    "template", ["", "*", "site/*", "{place}/*", "{site}/{date}/*", "{site}/{site}", "{site", "{site}}"]
)
def test_a_template_without_one_site_is_refused_with_a_valid_example(template):
    with pytest.raises(ConfigError, match=r"'\{site\}/\*'"):
        NamingScheme(site=template)


@given(site=st.text(st.characters(exclude_characters="/{}*", exclude_categories=["Cs"]), min_size=1))
def test_a_folder_of_any_name_is_found_by_its_template(site):
    assert template_site(f"{site}/20190522_000000.WAV", "{site}/*") == (site.strip() or None)


@pytest.mark.parametrize(
    ("path", "site"),
    [
        ("a.wav", None),
        ("pond/a.wav", "pond"),
        ("pond/20190522/a.wav", "pond"),
        ("pond/2019-05-22/a.wav", "pond"),
        ("20190522/a.wav", None),
        ("/a.wav", None),
        ("x/pond/a.wav", "pond"),
    ],
)
def test_a_folder_that_is_only_a_date_is_not_a_site(path, site):
    assert folder_site(path) == site


@pytest.mark.parametrize(
    ("path", "guano", "template", "site", "source"),
    [
        ("pond/" + SM4, GUANO, "{site}/*", "pond", "template"),
        ("pond/" + SM4, GUANO, None, "Cave 7", "GUANO"),
        ("pond/" + SM4, GUANO, "*/{site}/*", "Cave 7", "GUANO"),
        ("pond/" + SM4, None, None, "S4A03895", "file name"),
        ("pond/20190522_000000.WAV", None, None, "pond", "folder"),
        ("pond/XC238804.flac", None, None, None, None),
    ],
)
def test_the_template_comes_first_then_guano_then_the_name_then_the_folder(
    path, guano, template, site, source
):
    metadata = read_metadata(path, None, guano, NamingScheme(site=template))
    assert (metadata.site, metadata.site_source) == (site, source)


@pytest.mark.parametrize(
    ("template", "path", "site"), re.findall(r"^\| `(.+)` \| `(.+)` \| `(.+)` \|$", PAGE, re.M)
)
def test_the_templates_on_the_how_to_page_work_as_described(template, path, site):
    assert template_site(path, template) == site


@pytest.mark.parametrize(
    ("names", "zone", "sites"), re.findall(r"^\| (`\S.+\..+`) \| [^|]+ \| ([^|]+) \| ([^|]+) \|$", PAGE, re.M)
)
def test_the_file_names_on_the_how_to_page_are_parsed_as_described(names, zone, sites):
    names, sites = re.findall("`(.+?)`", names), re.findall("`(.+?)`", sites) or [sites.replace("the ", "")]
    for name, site in zip(names, sites * len(names) if len(sites) == 1 else sites, strict=True):
        metadata = read_metadata(f"folder/{name}", None, None, NamingScheme())
        assert (metadata.site or "unknown") == site
        assert (metadata.start_utc is not None) == (zone.startswith("UTC") or zone == "in the name")
        assert (metadata.start_local is None) == (zone == "no time")


def test_the_how_to_page_still_has_its_tables():
    assert len(re.findall(r"^\| `", PAGE, re.M)) >= 30
