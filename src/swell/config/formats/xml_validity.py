"""Whether bytes are well-formed XML. Document types and their entities are refused: they can make
a short text endless (billion laughs) or reach for files."""

from __future__ import annotations

from typing import NoReturn
from xml.parsers import expat

from swell.errors import InvalidContentError


def validate(data: bytes) -> None:
    """Raise `InvalidContentError` unless `data` is well-formed XML without a document type."""
    parser = expat.ParserCreate()

    def refuse(*declaration: object) -> NoReturn:
        raise InvalidContentError(
            parser.CurrentLineNumber,
            parser.CurrentColumnNumber + 1,
            "a document type or entity declaration: remove it",
        )

    parser.StartDoctypeDeclHandler = refuse
    parser.EntityDeclHandler = refuse
    parser.ExternalEntityRefHandler = refuse
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise InvalidContentError(
            error.lineno, error.offset + 1, expat.ErrorString(error.code)
        ) from None
