"""Metadata from recorders: a table of real file names and headers, then clocks, faults and properties."""

from __future__ import annotations

import itertools
import logging
from dataclasses import fields
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mast.errors import ConfigError
from mast.recordings.faults import FAULTS
from mast.recordings.metadata import FileMetadata, NamingScheme, read_comment, read_guano, read_metadata
from mast.records import Recording

NOW = datetime(2026, 11, 15, tzinfo=UTC)
UNSTATED = NamingScheme()
MADRID = NamingScheme(time_zone="Europe/Madrid")


def metadata_of(
    path: str, comment: str | None = None, guano: str | None = None, naming: NamingScheme = UNSTATED
) -> FileMetadata:
    return read_metadata(path, comment, guano, naming, NOW)


def moth(when: str, ending: str = "at medium gain while battery was 4.0V and temperature was 24.5C.") -> str:
    return f"Recorded at {when} by AudioMoth 24E144085F256A1B {ending}"


AM = moth("05:30:00 10/05/2023 (UTC)")
AM_MINUS_5 = moth("19:22:55 14/12/2020 (UTC-5)")
AM_INDIA = moth("13:00:00 10/05/2023 (UTC+5:30)")
AM_NEPAL = moth("13:15:00 10/05/2023 (UTC+5:45)")
AM_NEWFOUNDLAND = moth("04:00:00 10/05/2023 (UTC-3:30)")
AM_ODD = moth("05:00:00 10/05/2023 (UTC-0:30)")
AM_OLD = moth("16:54:48 10/04/2020 (UTC)", "at gain setting 2 while battery state was 4.0V")
AM_1_0 = moth("05:30:00 10/05/2023", "at gain setting 2 while battery state was 4.00V")
AM_1_2 = moth("07:30:00 10/05/2023 (UTC+2)", "at gain setting 3 while battery state was > 5.0V.")
AM_DEPLOYED = AM.replace("by AudioMoth", "during deployment")
AM_TRIGGER = moth(
    "05:30:00 10/05/2023 (UTC)",
    "using external microphone at low-medium gain while battery was 4.0V and temperature was 24.5C. "
    "Frequency trigger (8.0kHz and window length of 16 samples) threshold was 0.1% "
    "with 1s minimum trigger duration.",
)
AM_LOST = "Recorded by AudioMoth with an unknown firmware"
WA = "GUANO|Version: 1.0\nTimestamp: 2019-05-22 00:00:00-04:00\nMake: Wildlife\nModel: SM4\nSerial: S4A1"
SITED = "Timestamp: 2019-05-22T00:00:00Z\nNABat|Site Name: Cave 7\nLoc Position: 37.0 -3.4\nTE: 10\n"
LOCAL_BAT = "GUANO|Version: 1.0\r\nTimestamp: 2019-05-22T00:00:00\r\nMake: Titley\r\n\0"
FRACTION = "a line without a colon\nTimestamp: 2019-05-22T00:00:00.5+02:00\n: nameless\nSite:\n"
BROKEN = "Timestamp: yesterday\nModel: D500X\nPET|Gain: 80"

DIR = "folder"
NAME = "file name"
ICMT = "AudioMoth comment"
GUAN = "GUANO"
UTC0 = "AudioMoth default"
OWN = "stated"

FROM_THE_FIELD = [
    # path, comment, GUANO, → site, its source, start in UTC, offset in minutes, sources of the time and the zone
    # AudioMoth: bare names count as UTC, the folder as site
    ("A1/20230510_073000.WAV", None, None, "A1", DIR, "2023-05-10 07:30:00", 0, NAME, UTC0),
    ("A1/20230510_073000T.WAV", None, None, "A1", DIR, "2023-05-10 07:30:00", 0, NAME, UTC0),
    ("A1/20230510_073000.flac", None, None, "A1", DIR, "2023-05-10 07:30:00", 0, NAME, UTC0),
    ("A1/20230510/20230510_073000.WAV", None, None, "A1", DIR, "2023-05-10 07:30:00", 0, NAME, UTC0),
    ("A1/2023-05-10/20230510_073000.WAV", None, None, "A1", DIR, "2023-05-10 07:30:00", 0, NAME, UTC0),
    ("20230510_073000.WAV", None, None, None, None, "2023-05-10 07:30:00", 0, NAME, UTC0),
    ("A1/24E144085F256A1B_20230510_073000.WAV", None, None, "A1", DIR, "2023-05-10 07:30:00", 0, NAME, UTC0),
    ("A1/24E144085F256A1B_20230510_073000T.WAV", None, None, "A1", DIR, "2023-05-10 07:30:00", 0, NAME, UTC0),
    ("A1/5E90A4D4.WAV", None, None, "A1", DIR, "2020-04-10 16:54:44", 0, NAME, NAME),
    ("A1/5e90a4d4.wav", None, None, "A1", DIR, "2020-04-10 16:54:44", 0, NAME, NAME),
    # AudioMoth comments of every age
    ("A1/20230510_053000.WAV", AM, None, "A1", DIR, "2023-05-10 05:30:00", 0, ICMT, ICMT),
    ("A1/20201214_192255.WAV", AM_MINUS_5, None, "A1", DIR, "2020-12-15 00:22:55", -300, ICMT, ICMT),
    ("A1/20230510_130000.WAV", AM_INDIA, None, "A1", DIR, "2023-05-10 07:30:00", 330, ICMT, ICMT),
    ("A1/20230510_131500.WAV", AM_NEPAL, None, "A1", DIR, "2023-05-10 07:30:00", 345, ICMT, ICMT),
    ("A1/20230510_040000.WAV", AM_NEWFOUNDLAND, None, "A1", DIR, "2023-05-10 07:30:00", -210, ICMT, ICMT),
    ("A1/20230510_050000.WAV", AM_ODD, None, "A1", DIR, "2023-05-10 05:30:00", -30, ICMT, ICMT),
    ("A1/20230510_053000.WAV", AM_1_0, None, "A1", DIR, "2023-05-10 05:30:00", 0, ICMT, UTC0),
    ("A1/20230510_073000.WAV", AM_1_2, None, "A1", DIR, "2023-05-10 05:30:00", 120, ICMT, ICMT),
    ("A1/20230510_053000.WAV", AM_DEPLOYED, None, "A1", DIR, "2023-05-10 05:30:00", 0, ICMT, ICMT),
    ("A1/20230510_053000T.WAV", AM_TRIGGER, None, "A1", DIR, "2023-05-10 05:30:00", 0, ICMT, ICMT),
    ("A1/5E90A4D4.WAV", AM_OLD, None, "A1", DIR, "2020-04-10 16:54:48", 0, ICMT, ICMT),
    ("A1/rec001.wav", AM, None, None, None, "2023-05-10 05:30:00", 0, ICMT, ICMT),
    ("AM02_20230510_073000 .WAV", AM_1_2, None, "AM02", NAME, "2023-05-10 05:30:00", 120, ICMT, ICMT),
    ("AM02_20230510_073000 .WAV", AM_LOST, None, "AM02", NAME, "2023-05-10 07:30:00", 0, NAME, UTC0),
    ("A1/20230510_073000.WAV", "mixed by hand", None, "A1", DIR, "2023-05-10 07:30:00", 0, NAME, UTC0),
    ("A1/copy of 20230510_053000.WAV", None, None, "A1", DIR, "2023-05-10 05:30:00", 0, NAME, UTC0),
    ("A1/Copy (2) of Copia de AM2_20230510_073000.WAV", None, None, "AM2", NAME, None, None, NAME, None),
    # prefixes name the site; such clocks do not state their zone
    ("AM02_20230510_073000 .WAV", None, None, "AM02", NAME, None, None, NAME, None),
    ("AM2_20230510_073000.WAV", None, None, "AM2", NAME, None, None, NAME, None),
    ("x/S4A03895_20190522_000000.wav", None, None, "S4A03895", NAME, None, None, NAME, None),
    ("SMM01234_20190522_000000_000.wav", None, None, "SMM01234", NAME, None, None, NAME, None),
    ("SM304256_0+1_20210101_120000.wav", None, None, "SM304256", NAME, None, None, NAME, None),
    ("SM304256_-_20210101_120000.wav", None, None, "SM304256", NAME, None, None, NAME, None),
    ("SM304256_+1_20210101_120000.wav", None, None, "SM304256", NAME, None, None, NAME, None),
    ("SM304256_20210101$120000.wav", None, None, "SM304256", NAME, None, None, NAME, None),
    ("dalby_bush_01_2980_702775_20201222_180530_30_0.flac", None, None, "dalby_bush_01_2980_702775", NAME,
     None, None, NAME, None),
    ("Río Frío-3_20210101_120000.wav", None, None, "Río Frío-3", NAME, None, None, NAME, None),
    # names with a zone
    ("swift_20190902_030000_-0400.wav", None, None, "swift", NAME, "2019-09-02 07:00:00", -240, NAME, NAME),
    ("S1120_20190902_030000Z.flac", None, None, "S1120", NAME, "2019-09-02 03:00:00", 0, NAME, NAME),
    ("S1120_20190902_030000+0545.wav", None, None, "S1120", NAME, "2019-09-01 21:15:00", 345, NAME, NAME),
    ("20210428T100000Z_Five-Rivers-Dry-A_909057.flac", None, None, "Five-Rivers-Dry-A", NAME,
     "2021-04-28 10:00:00", 0, NAME, NAME),
    ("20210428T100000+1000_Five-Rivers-Dry-A_909057.flac", None, None, "Five-Rivers-Dry-A", NAME,
     "2021-04-28 00:00:00", 600, NAME, NAME),
    ("B3/20190522T000000+1000_REC [19.2-155.1].flac", None, None, "B3", DIR,
     "2019-05-21 14:00:00", 600, NAME, NAME),
    ("2023-05-10T07:30:00.250Z.wav", None, None, None, None, "2023-05-10 07:30:00.250000", 0, NAME, NAME),
    ("2023-05-10T07:30:00-03:00.wav", None, None, None, None, "2023-05-10 10:30:00", -180, NAME, NAME),
    # other naming schemes
    ("B3/2023-05-10_07-30-00.wav", None, None, "B3", DIR, None, None, NAME, None),
    ("B3/2023-05-10T07:30:00.wav", None, None, "B3", DIR, None, None, NAME, None),
    ("B3/20230510073000.mp3", None, None, "B3", DIR, None, None, NAME, None),
    ("cave_20230510-073000.wav", None, None, "cave", NAME, None, None, NAME, None),
    ("cave_20231310_073000_20230510_073000Z.wav", None, None, "cave_20231310_073000", NAME,
     "2023-05-10 07:30:00", 0, NAME, NAME),
    # GUANO
    ("S4A1_20190522_000000.wav", None, WA, "S4A1", NAME, "2019-05-22 04:00:00", -240, GUAN, GUAN),
    ("bat001.wav", None, SITED, "Cave 7", GUAN, "2019-05-22 00:00:00", 0, GUAN, GUAN),
    ("bat001.wav", None, LOCAL_BAT, None, None, None, None, GUAN, None),
    ("swift_20190522_000000_-0400.wav", None, LOCAL_BAT, "swift", NAME,
     "2019-05-22 04:00:00", -240, GUAN, NAME),
    ("bat001.wav", None, FRACTION, None, None, "2019-05-21 22:00:00.500000", 120, GUAN, GUAN),
    ("N_20190522_000000.wav", None, BROKEN, "N", NAME, None, None, NAME, None),
    ("A1/20230510_053000.WAV", AM, WA, "A1", DIR, "2023-05-10 05:30:00", 0, ICMT, ICMT),
    # no start time
    ("XC238804.flac", None, None, None, None, None, None, None, None),
    ("A1/20231310_073000.WAV", None, None, None, None, None, None, None, None),
    ("A1/20230230_073000.WAV", None, None, None, None, None, None, None, None),
    ("A1/20230510_243000.WAV", None, None, None, None, None, None, None, None),
    ("A1/20230510.WAV", None, None, None, None, None, None, None, None),
    ("A1/DEADBEEF.WAV", None, None, None, None, None, None, None, None),
    ("A1/00000012.WAV", None, None, None, None, None, None, None, None),
    ("A1/123420230510_0730001.wav", None, None, None, None, None, None, None, None),
    ("20230510_073000/first.wav", None, None, None, None, None, None, None, None),
    ("", None, None, None, None, None, None, None, None),
]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "comment", "guano", "site", "site_by", "utc", "offset_min", "time_by", "zone_by"), FROM_THE_FIELD
)
def test_real_names_and_headers(path, comment, guano, site, site_by, utc, offset_min, time_by, zone_by):
    metadata = metadata_of(path, comment, guano)
    start = metadata.start_utc and str(metadata.start_utc.replace(tzinfo=None))
    assert (metadata.site, metadata.site_source) == (site, site_by)
    assert (start, metadata.utc_offset_min) == (utc, offset_min)
    assert (metadata.start_source, metadata.zone_source) == (time_by, zone_by)
    unknown = "no-time-zone" if time_by else "no-start-time"
    expected_faults = () if utc else (unknown,)
    assert tuple(fault for fault in metadata.faults if fault != "clock-disagrees") == expected_faults


def test_metadata_are_fields_of_a_recording_and_faults_have_a_meaning():
    assert set(FileMetadata._fields) <= {field.name for field in fields(Recording)}
    clock_faults = {
        "clock-reset",
        "clock-in-future",
        "clock-disagrees",
        "ambiguous-local-time",
        "nonexistent-local-time",
    }
    assert clock_faults | {"no-start-time", "no-time-zone"} <= FAULTS.keys()


@pytest.mark.parametrize(
    ("path", "comment", "guano", "device", "device_by", "gain", "gain_by"),
    [
        ("x.wav", None, None, None, None, None, None),
        ("x.wav", AM, None, "AudioMoth 24E144085F256A1B", ICMT, "medium", ICMT),
        ("x.wav", AM_1_0, None, "AudioMoth 24E144085F256A1B", ICMT, "medium", ICMT),
        ("x.wav", AM_1_2, None, "AudioMoth 24E144085F256A1B", ICMT, "medium-high", ICMT),
        ("x.wav", AM_TRIGGER, None, "AudioMoth 24E144085F256A1B", ICMT, "low-medium", ICMT),
        ("x.wav", AM_DEPLOYED, None, None, None, "medium", ICMT),
        ("x.wav", AM_DEPLOYED, WA, "SM4 S4A1", GUAN, "medium", ICMT),
        ("24E144085F256A1B_20230510_053000.WAV", None, None, "AudioMoth 24E144085F256A1B", NAME, None, None),
        ("x.wav", None, WA, "SM4 S4A1", GUAN, None, None),
        ("x.wav", None, LOCAL_BAT, "Titley", GUAN, None, None),
        ("x.wav", None, BROKEN, "D500X", GUAN, "80", GUAN),
    ],
)
def test_device_and_gain_come_with_their_source(path, comment, guano, device, device_by, gain, gain_by):
    metadata = metadata_of(path, comment, guano)
    assert (metadata.device, metadata.device_source) == (device, device_by)
    assert (metadata.gain, metadata.gain_source) == (gain, gain_by)


# the stated zone


@pytest.mark.parametrize(
    ("path", "comment", "guano", "utc", "zone_by"),
    [
        ("S4A03895_20190522_000000.wav", None, None, "2019-05-21 22:00", OWN),
        ("A1/20190522_000000.WAV", None, None, "2019-05-21 22:00", OWN),
        ("A1/20230510_053000.WAV", AM_1_0, None, "2023-05-10 03:30", OWN),
        ("bat001.wav", None, LOCAL_BAT, "2019-05-21 22:00", OWN),
        ("A1/20230510_053000.WAV", AM, None, "2023-05-10 05:30", ICMT),
        ("S4A1_20190522_000000.wav", None, WA, "2019-05-22 04:00", GUAN),
        ("swift_20190902_030000_-0400.wav", None, None, "2019-09-02 07:00", NAME),
        ("5E90A4D4.WAV", None, None, "2020-04-10 16:54", NAME),
    ],
)
def test_the_users_zone_replaces_defaults_but_never_the_recorders_own_zone(
    path, comment, guano, utc, zone_by
):
    metadata = metadata_of(path, comment, guano, MADRID)
    assert f"{metadata.start_utc:%Y-%m-%d %H:%M}" == utc
    assert metadata.zone_source == zone_by


@pytest.mark.parametrize(
    ("zone", "local", "utc", "offset_min", "fault"),
    [
        # summer, winter, an ambiguous hour, a nonexistent hour
        ("Europe/Madrid", "20230710_120000", "2023-07-10 10:00", 120, None),
        ("Europe/Madrid", "20230110_120000", "2023-01-10 11:00", 60, None),
        ("Europe/Madrid", "20231029_023000", "2023-10-29 00:30", 120, "ambiguous-local-time"),
        ("Europe/Madrid", "20231029_030000", "2023-10-29 02:00", 60, None),
        ("Europe/Madrid", "20230326_023000", "2023-03-26 01:30", 60, "nonexistent-local-time"),
        ("Europe/Madrid", "20230326_030000", "2023-03-26 01:00", 120, None),
        ("America/New_York", "20231105_013000", "2023-11-05 05:30", -240, "ambiguous-local-time"),
        ("America/New_York", "20230312_023000", "2023-03-12 07:30", -300, "nonexistent-local-time"),
        ("Australia/Lord_Howe", "20230101_120000", "2023-01-01 01:00", 660, None),
        ("Australia/Lord_Howe", "20230701_120000", "2023-07-01 01:30", 630, None),
        ("Australia/Lord_Howe", "20230402_014500", "2023-04-01 14:45", 660, "ambiguous-local-time"),
        ("Australia/Lord_Howe", "20230402_012900", "2023-04-01 14:29", 660, None),
        ("Australia/Lord_Howe", "20231001_021500", "2023-09-30 15:45", 630, "nonexistent-local-time"),
        ("Asia/Kolkata", "20230710_120000", "2023-07-10 06:30", 330, None),
        ("Asia/Kathmandu", "20230710_120000", "2023-07-10 06:15", 345, None),
        ("America/St_Johns", "20230110_120000", "2023-01-10 15:30", -210, None),
        ("UTC", "20230710_120000", "2023-07-10 12:00", 0, None),
    ],
)
def test_local_times_follow_the_zone_through_daylight_saving(zone, local, utc, offset_min, fault):
    metadata = metadata_of(f"S_{local}.wav", naming=NamingScheme(time_zone=zone))
    assert (f"{metadata.start_utc:%Y-%m-%d %H:%M}", metadata.utc_offset_min) == (utc, offset_min)
    assert metadata.faults == ((fault,) if fault else ())


@pytest.mark.parametrize("zone", ["Mars/Olympus", "Europe", "", "/etc/passwd"])
def test_a_zone_that_does_not_exist_is_refused_with_a_valid_example(zone):
    with pytest.raises(ConfigError, match="Europe/Madrid"):
        NamingScheme(time_zone=zone)


# unreliable clocks


@pytest.mark.parametrize(
    ("path", "comment", "offset_min", "zone_by"),
    [
        ("A1/19700101_000012.WAV", None, None, None),
        ("A1/19700101_000012.WAV", moth("00:00:12 01/01/1970 (UTC)"), 0, ICMT),
        ("S4A1_19991231_235959.wav", None, None, None),
    ],
)
def test_a_clock_that_was_never_set_keeps_its_local_time_but_has_no_utc_time(
    path, comment, offset_min, zone_by
):
    metadata = metadata_of(path, comment, naming=MADRID)
    assert metadata.faults == ("clock-reset",)
    assert metadata.start_utc is None and metadata.start_local.year < 2000
    assert (metadata.utc_offset_min, metadata.zone_source) == (offset_min, zone_by)


def test_a_reset_clock_in_the_header_is_not_corrected_by_the_file_name():
    metadata = metadata_of("A1/20230510_073000.WAV", moth("00:00:12 01/01/1970 (UTC)"))
    assert metadata.faults == ("clock-reset", "clock-disagrees")
    assert metadata.start_utc is None
    assert metadata.detail.endswith("file name: 2023-05-10 07:30:00")


@pytest.mark.parametrize(
    ("name", "future"),
    [
        ("20261115_235959", False),
        ("20261116_000000", False),
        ("20261116_000001", True),
        ("20991231_000000", True),
    ],
)
def test_a_clock_more_than_a_day_ahead_is_in_the_future(name, future):
    assert ("clock-in-future" in metadata_of(f"{name}.WAV").faults) is future
    assert ("clock-in-future" in metadata_of(f"S4A1_{name}.wav").faults) is future


def test_now_defaults_to_the_current_time():
    assert read_metadata("20991231_000000.WAV", None, None, UNSTATED).faults == ("clock-in-future",)
    assert read_metadata("20230510_073000.WAV", None, None, UNSTATED).faults == ()


@pytest.mark.parametrize(
    ("path", "comment", "agrees"),
    [
        ("20230510_053000.WAV", AM, True),
        ("20230510_053010.WAV", AM, True),  # the microphone started late
        ("20230510_053011.WAV", AM, False),
        ("20230510_052950.WAV", AM, True),
        ("20230510_073000.WAV", AM, True),  # named in local time, header in UTC
        ("20230509_193005.WAV", AM, True),
        ("20230510_193000.WAV", AM, True),
        ("20230510_194500.WAV", AM, False),  # no zone is further away
        ("20230510_054000.WAV", AM, False),
        ("20230511_053000.WAV", AM, False),
        ("5E90A4D4.WAV", AM, False),
        ("S1_20230510_053000Z.WAV", AM, True),
        ("S1_20230510_073000+0200.WAV", AM, True),
        ("S1_20230510_073000Z.WAV", AM, False),  # both state their zone, so the times must agree
        ("S1_20230510_053000+0200.WAV", AM, False),
        ("XC238804.wav", AM, True),
    ],
)
def test_file_name_and_header_may_be_a_zone_or_ten_seconds_apart(path, comment, agrees):
    metadata = metadata_of(path, comment)
    assert metadata.faults == (() if agrees else ("clock-disagrees",))
    assert f"{metadata.start_utc:%Y-%m-%d %H:%M}" == "2023-05-10 05:30"
    assert (metadata.detail is None) is agrees


def test_a_disagreement_is_described_in_detail():
    assert metadata_of("20230511_053000.WAV", AM).detail == (
        "AudioMoth comment: 2023-05-10 05:30:00; file name: 2023-05-11 05:30:00"
    )


@pytest.mark.parametrize(
    "when", ["05:30:00 10/13/2023 (UTC)", "25:30:00 10/05/2023 (UTC)", "05:30:00 10/05/0001 (UTC)"]
)
def test_a_comment_with_an_invalid_time_gives_no_metadata(when):
    assert metadata_of("x.wav", moth(when)).start_source is None
    assert metadata_of("20230510_073000.WAV", moth(when)).start_source == NAME


@pytest.mark.parametrize(
    "stamp", ["2023-05-10", "0001-01-01T00:00:00+05:00", "9999-12-31T23:59:59-05:00", "07:30", ""]
)
def test_an_invalid_guano_timestamp_gives_no_time(stamp):
    assert metadata_of("x.wav", guano=f"Timestamp: {stamp}").faults == ("no-start-time",)


def test_a_guano_timestamp_of_an_audiomoth_without_its_zone_counts_as_utc():
    assert metadata_of("x.wav", guano="Timestamp: 2023-05-10 07:30:00\nModel: AudioMoth").zone_source == UTC0


def test_keys_in_a_manufacturers_namespace_are_not_standard_guano_keys():
    assert read_guano("X|Timestamp: 2023-05-10T07:30:00Z\nX|Model: robot").clock is None
    assert read_guano("X|Model: robot").device is None


# properties

SECONDS = st.datetimes(datetime(2000, 1, 2), datetime(2026, 11, 1)).map(
    lambda time: time.replace(microsecond=0)
)
OFFSETS_MIN = st.integers(-12 * 4, 14 * 4).map(lambda quarters: quarters * 15)


def hours(offset_min: int, colon: str = "") -> str:
    return f"{'-' if offset_min < 0 else '+'}{abs(offset_min) // 60:02}{colon}{abs(offset_min) % 60:02}"


def comment_zone(offset_min: int) -> str:
    hours, minutes = divmod(abs(offset_min), 60)
    sign = "-" if offset_min < 0 else "+"
    return f"{sign}{hours}:{minutes:02}" if minutes else f"{sign}{hours}" if hours else ""


@given(utc=SECONDS, offset_min=OFFSETS_MIN)
@example(utc=datetime(2023, 5, 10), offset_min=-30)
def test_every_format_with_a_zone_gives_the_same_instant(utc, offset_min):
    local = utc + timedelta(minutes=offset_min)
    compact, dashed = f"{local:%Y%m%d_%H%M%S}", f"{local:%Y-%m-%dT%H:%M:%S}"
    parsed = [
        metadata_of(f"swift_{compact}_{hours(offset_min)}.wav"),
        metadata_of(f"{compact.replace('_', 'T')}{hours(offset_min)}_Five-Rivers_909057.flac"),
        metadata_of(f"{dashed}{hours(offset_min, ':')}.wav"),
        metadata_of(f"S1120_{utc:%Y%m%d_%H%M%S}Z.wav"),
        metadata_of(f"{compact}.WAV", moth(f"{local:%H:%M:%S %d/%m/%Y} (UTC{comment_zone(offset_min)})")),
        metadata_of("bat.wav", guano=f"Timestamp: {dashed}{hours(offset_min, ':')}"),
        metadata_of("bat.wav", guano=f"Timestamp: {dashed.replace('T', ' ')} {hours(offset_min, ':')}"),
    ]
    assert {metadata.start_utc for metadata in parsed} == {utc.replace(tzinfo=UTC)}
    assert all(
        metadata.start_local == metadata.start_utc.replace(tzinfo=None) + minutes(metadata)
        for metadata in parsed
    )
    assert not any(metadata.faults for metadata in parsed)


def minutes(metadata: FileMetadata) -> timedelta:
    return timedelta(minutes=metadata.utc_offset_min)


@given(local=SECONDS)
def test_every_format_without_a_zone_gives_the_recorders_local_time(local):
    compact, dashed = f"{local:%Y%m%d_%H%M%S}", f"{local:%Y-%m-%d_%H-%M-%S}"
    styles = ["{0}.WAV", "{0}T.WAV", "24E144085F256A1B_{0}.WAV", "AM02_{0} .WAV", "S4A03895_{0}_000.wav"]
    styles += ["SM304256_0+1_{0}.wav", "dalby_bush_01_2980_702775_{0}_30_0.flac", "{1}.wav", "site_{1}.wav"]
    paths = [style.format(compact, dashed) for style in styles]
    paths += [f"S_{compact.replace('_', '$')}.wav", f"S_{compact.replace('_', '')}.wav"]
    assert {metadata_of(path).start_local for path in paths} == {local}


@given(seconds=st.integers(0x5686_0000, 0x7000_0000))
def test_old_audiomoth_names_are_unix_times(seconds):
    assert metadata_of(f"{seconds:08X}.WAV").start_utc.timestamp() == seconds


ANY_TEXT = st.text(max_size=60)
SHARDS = [
    "Recorded at ", "05:30:00 ", "99/99/9999", "31/12/9999 ", "(UTC", "-14:99", ")", " by AudioMoth ", "24E1",
    " at gain setting 9", " at high gain", "Timestamp:", "9999-12-31T23:59:59", "0001-01-01T00:00:00",
    "+23:59", "-23:59", "Z", "\n", "|", "Serial: ", "Site Name:", "Gain:", "20230510", "_", "073000", "-1400",
    "19700101", "20991231_235959", "FFFFFFFF", "T", "/", ".WAV", "²", "٣", "\0", "\udcff",
]  # fmt: skip
LIKELY_TEXT = st.lists(st.sampled_from(SHARDS), max_size=12).map("".join)
TEXT = ANY_TEXT | LIKELY_TEXT


@given(
    path=TEXT,
    comment=st.none() | TEXT,
    guano=st.none() | TEXT,
    site=st.sampled_from([None, "{site}/**", "*{site}*"]),
)
def test_no_text_raises_an_error(path, comment, guano, site):
    for zone in (None, "Australia/Lord_Howe"):
        metadata = metadata_of(path, comment, guano, NamingScheme(site, zone))
        assert set(metadata.faults) <= FAULTS.keys()
        assert (metadata.start_utc is None) == bool(
            {"no-start-time", "no-time-zone", "clock-reset"} & set(metadata.faults)
        )
        assert (metadata.start_local is None) == (metadata.start_source is None)
        assert (metadata.site is None) == (metadata.site_source is None)
        assert (metadata.device is None) == (metadata.device_source is None)


# other libraries that parse the same headers

ENDINGS = [
    "at gain setting 2 while battery state was 4.00V",
    "at gain setting 2 while battery state was < 3.6V",
    "at gain setting 2 while battery state was 4.20V.",
    "at gain setting 2 while battery state was less than 3.6V. "
    "Recording cancelled before completion due to low battery voltage.",
    "at medium gain setting while battery state was 4.0V and temperature was -4.5C.",
    "at medium gain setting while battery state was 4.0V and temperature was 24.5C. "
    "Amplitude threshold was 12. Low-pass filter applied with cut-off frequency of 8.0kHz.",
    "at medium gain setting while battery state was greater than 4.9V and temperature was 24.5C. "
    "Recording cancelled before completion due to file size limit.",
    "at medium-high gain while battery was 4.0V and temperature was 24.5C.",
    "at low gain while battery was less than 2.5V and temperature was 24.5C. "
    "Amplitude threshold was -12 dB with 3s minimum trigger duration. "
    "Band-pass filter with frequencies of 1.0kHz and 8.0kHz applied.",
]
ZONES = ["", " (UTC)", " (UTC-5)", " (UTC+10)", " (UTC+5:30)"]
SENTENCES = [moth(f"19:22:55 14/12/2020{zone}", ending) for zone, ending in itertools.product(ZONES, ENDINGS)]


def test_comments_are_parsed_as_by_metamoth_for_every_firmware_it_supports():
    from metamoth.parsing import MessageFormatError, parse_comment

    firmware = set()
    for sentence in SENTENCES:
        try:
            expected = parse_comment(sentence)
        except MessageFormatError:
            continue
        parsed_header = read_comment(sentence)
        offset_min = expected["timezone"].utcoffset(None) // timedelta(minutes=1)
        assert (parsed_header.clock.local, parsed_header.clock.offset_min or 0) == (
            expected["datetime"],
            offset_min,
        )
        assert parsed_header.device == f"AudioMoth {expected['audiomoth_id']}"
        assert parsed_header.gain == expected["gain"].name.removeprefix("AM_GAIN_").lower().replace("_", "-")
        firmware.add(expected["firmware_version"])
    assert firmware == {"1.0", "1.0.1", "1.2.0", "1.2.1", "1.2.2", "1.4.0", "1.4.2", "1.6.0"}


@pytest.mark.parametrize("text", [WA, SITED, LOCAL_BAT, BROKEN])
def test_guano_is_parsed_as_by_the_reference_implementation(text):
    import guano

    logging.disable()
    expected = guano.GuanoFile.from_string(text.rstrip("\0"))
    logging.disable(logging.NOTSET)
    parsed_header = read_guano(text)
    stamp = expected.get("Timestamp")
    if isinstance(stamp, datetime):
        offset = stamp.utcoffset()
        assert parsed_header.clock.local == stamp.replace(tzinfo=None)
        assert parsed_header.clock.offset_min == (None if offset is None else offset // timedelta(minutes=1))
    else:
        assert parsed_header.clock is None
    model = expected.get("Model", expected.get("Make"))
    assert parsed_header.device == (" ".join(filter(None, (model, expected.get("Serial")))) or None)
    assert parsed_header.site == expected.get("NABat|Site Name")
    assert parsed_header.gain == expected.get("PET|Gain")
