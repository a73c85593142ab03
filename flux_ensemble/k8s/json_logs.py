"""Logs with one JSON object per line, for log collectors."""

from __future__ import annotations

import datetime
import json
import logging


class JsonFormatter(logging.Formatter):
    """Formats a record as {"time", "level", "logger", "message", "exception"?}."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        entry = {
            "time": moment.isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry)


def start_logging(form: str) -> None:
    """Log to standard error, from level INFO.

    Args:
        form: "text" or "json".
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    if form == "json":
        for handler in logging.getLogger().handlers:
            handler.setFormatter(JsonFormatter())
