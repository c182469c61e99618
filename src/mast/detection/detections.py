"""Detections of one or more recordings as a sequence of events, with clock times, site and tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, overload

from mast.records import DetectedEvent, Event, Recording, rows_to_table
from mast.wording import counted

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


class Detections(Sequence[Event]):
    """Events that a model detected, in the order of the recordings and then by start.

    Behaves like a list of `mast.Event`; a slice is again a `Detections`.

    Attributes:
        recordings: `mast.Recording` of every recording that was processed, by its `recording_id`: duration, sample
            rate, clock, site, faults.
        failed: Reason for each recording that could not be read, or not to its end, by `recording_id`.
        model: Identity of the model.
    """

    def __init__(
        self,
        events: Iterable[Event],
        recordings: Mapping[str, Recording],
        model: str,
        failed: Mapping[str, str] | None = None,
    ) -> None:
        self._events = tuple(events)
        self.recordings, self.model, self.failed = dict(recordings), model, dict(failed or {})

    def __len__(self) -> int:
        return len(self._events)

    def __iter__(self) -> Iterator[Event]:
        return iter(self._events)

    @overload
    def __getitem__(self, index: int) -> Event: ...
    @overload
    def __getitem__(self, index: slice) -> Detections: ...
    def __getitem__(self, index: int | slice) -> Event | Detections:
        if isinstance(index, int):
            return self._events[index]
        return Detections(self._events[index], self.recordings, self.model, self.failed)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and not isinstance(other, str) and tuple(other) == self._events

    __hash__ = None  # type: ignore[assignment]  # equal to a list, which has no hash either

    def __repr__(self) -> str:
        count, recordings = len(self), len(self.recordings)
        failed = f", {len(self.failed)} failed" if self.failed else ""
        return f"Detections({counted(count, 'event')} in {counted(recordings, 'recording')}{failed})"

    def to_arrow(self) -> pa.Table:
        """Return an Arrow table with a row for each event, in the schema of a run's event tables.

        Returns:
            Columns `recording_id`, `start_s`, `end_s`, `low_hz`, `high_hz`, `score`, `start_utc` (the event's start),
            `start_local` (the recorder's clock), `utc_offset_min`, `site` and `model`. Clock columns are null where
            the recording's clock is unknown.
        """
        rows = []
        for event in self._events:
            recording, since = self.recordings[event.recording_id], timedelta(seconds=event.start_s)
            rows.append(
                (
                    *(
                        event.recording_id,
                        event.start_s,
                        event.end_s,
                        event.low_hz,
                        event.high_hz,
                        event.score,
                    ),
                    recording.start_utc and recording.start_utc + since,
                    recording.start_local and recording.start_local + since,
                    *(recording.utc_offset_min, recording.site, self.model),
                )
            )
        return rows_to_table(rows, DetectedEvent)

    def to_pandas(self) -> pd.DataFrame:
        """Return a pandas DataFrame with a row for each event.

        Returns:
            The columns of `to_arrow`.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        try:
            import pandas  # noqa: F401  # pyarrow's own message does not say how to install it
        except ImportError:
            from mast.errors import MissingExtraError

            raise MissingExtraError("A DataFrame", "pandas") from None
        return self.to_arrow().to_pandas()
