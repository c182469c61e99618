"""Table schemas of the Camtrap DP packages that MAST writes: the fields that audio needs, and the acoustic fields."""

from __future__ import annotations

from typing import Any

TIME_FORMAT = "%Y-%m-%dT%H:%M:%S.%f%z"


def _field(name: str, kind: str = "string", **constraints: Any) -> dict[str, Any]:
    field: dict[str, Any] = {"name": name, "type": kind}
    if kind == "datetime":
        field["format"] = TIME_FORMAT
    return field | ({"constraints": constraints} if constraints else {})


def _refers_to(resource: str, name: str) -> dict[str, Any]:
    return {"fields": name, "reference": {"resource": resource, "fields": name}}


RESOURCES: dict[str, dict[str, Any]] = {
    "deployments": {
        "fields": [
            _field("deploymentID", required=True, unique=True),
            _field("locationName"),
            _field("deploymentStart", "datetime", required=True),
            _field("deploymentEnd", "datetime", required=True),
        ],
        "primaryKey": "deploymentID",
    },
    "media": {
        "fields": [
            _field("mediaID", required=True, unique=True),
            _field("deploymentID", required=True),
            _field("timestamp", "datetime", required=True),
            _field("filePath", required=True),
            _field("filePublic", "boolean", required=True),
            _field("fileName"),
            _field("fileMediatype", required=True, pattern="^audio/.*$"),
            _field("samplingFrequency", "integer", minimum=1),
            _field("bitDepth", "integer", minimum=1),
            _field("gain"),
            _field("channels", "integer", minimum=1),
            _field("mediaDuration", "number", minimum=0),
        ],
        "primaryKey": "mediaID",
        "foreignKeys": [_refers_to("deployments", "deploymentID")],
    },
    "observations": {
        "fields": [
            _field("observationID", required=True, unique=True),
            _field("deploymentID", required=True),
            _field("mediaID", required=True),
            _field("eventStart", "datetime", required=True),
            _field("eventEnd", "datetime", required=True),
            _field("observationLevel", required=True, enum=["interval", "media"]),
            _field("observationType", required=True, enum=["animal", "blank"]),
            _field("scientificName"),
            _field("classificationMethod", enum=["human", "machine"]),
            _field("classifiedBy"),
            _field("classificationProbability", "number", minimum=0, maximum=1),
            _field("frequencyLow", "number", minimum=0),
            _field("frequencyHigh", "number", minimum=0),
            _field("event_origin", enum=["pseudo"]),
            _field("reviewed_s"),
        ],
        "primaryKey": "observationID",
        "foreignKeys": [_refers_to("deployments", "deploymentID"), _refers_to("media", "mediaID")],
    },
}
