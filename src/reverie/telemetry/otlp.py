"""Export of spans and metrics over OTLP, set up from OpenTelemetry's own environment variables."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final

from ..errors import InputError
from ..events import Listener
from ..extras import needing

_PREFIX: Final = "OTEL_EXPORTER_OTLP"
_SIGNALS: Final = ("traces", "metrics")
_FLUSH_SECONDS: Final = 5.0


def exported_signals(environ: Mapping[str, str]) -> list[str]:
    """Return which of ``traces`` and ``metrics`` the variables ask to export; none if they switch the SDK off."""
    if environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return []
    found: list[str] = []
    for signal in _SIGNALS:
        exporter = environ.get(f"OTEL_{signal.upper()}_EXPORTER", "")
        endpoints = (environ.get(f"{_PREFIX}_ENDPOINT"), environ.get(f"{_PREFIX}_{signal.upper()}_ENDPOINT"))
        if exporter not in ("", "otlp", "none"):
            raise InputError(f"OTEL_{signal.upper()}_EXPORTER is {exporter!r}; reverie exports otlp or none")
        if exporter == "otlp" or (exporter == "" and any(endpoints)):
            found.append(signal)
    return found


@contextmanager
def exporting(environ: Mapping[str, str], warn: Callable[[str], None]) -> Generator[Listener | None]:
    """Yield a listener that exports events by the usual variables, None without them; send the rest at the end.

    A collector that does not answer delays nothing but the end, by five seconds at most, and ``warn`` says so.
    """
    signals = exported_signals(environ)
    if not signals:
        yield None
        return
    from .otel import OpenTelemetry

    problems = _Problems()
    logger = logging.getLogger("opentelemetry")
    logger.addHandler(problems)
    logger.propagate, propagated = False, logger.propagate
    providers = _providers(signals, environ)
    listener = OpenTelemetry(tracer_provider=providers.get("traces"), meter_provider=providers.get("metrics"))
    try:
        yield listener
    finally:
        listener.close()
        ending = threading.Thread(target=lambda: [one.shutdown() for one in providers.values()], daemon=True)
        ending.start()
        ending.join(_FLUSH_SECONDS)
        logger.removeHandler(problems)
        logger.propagate = propagated
        if ending.is_alive() or problems.last:
            warn(f"telemetry was not sent completely: {problems.last or 'the collector does not answer'}")


class _Problems(logging.Handler):
    """Keeps the last problem that the SDK reports, which would else be printed into the conversation."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.last = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.last = record.getMessage().splitlines()[0][:200]


def _providers(signals: list[str], environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the SDK's providers of these signals, which export by the protocol that the variables name."""
    with needing("otel", "OTEL_EXPORTER_OTLP_* is set, but the exporter is missing", InputError):
        resources: Any = import_module("opentelemetry.sdk.resources")
        named = "service.name=" in environ.get("OTEL_RESOURCE_ATTRIBUTES", "") or "OTEL_SERVICE_NAME" in environ
        resource = resources.Resource.create({} if named else {"service.name": "reverie"})
        found: dict[str, Any] = {}
        if "traces" in signals:
            sdk: Any = import_module("opentelemetry.sdk.trace")
            export: Any = import_module("opentelemetry.sdk.trace.export")
            found["traces"] = sdk.TracerProvider(resource=resource, shutdown_on_exit=False)
            sent = _exporter("traces", environ).OTLPSpanExporter()
            found["traces"].add_span_processor(export.BatchSpanProcessor(sent))
        if "metrics" in signals:
            sdk, export = import_module("opentelemetry.sdk.metrics"), import_module("opentelemetry.sdk.metrics.export")
            reader = export.PeriodicExportingMetricReader(_exporter("metrics", environ).OTLPMetricExporter())
            found["metrics"] = sdk.MeterProvider([reader], resource=resource, shutdown_on_exit=False)
    return found


def _exporter(signal: str, environ: Mapping[str, str]) -> Any:
    """Return the module with the exporter of a signal, for the protocol that the variables name."""
    protocol = environ.get(f"{_PREFIX}_{signal.upper()}_PROTOCOL") or environ.get(f"{_PREFIX}_PROTOCOL")
    kind = {None: "http", "http/protobuf": "http", "grpc": "grpc"}.get(protocol)
    if kind is None:
        raise InputError(f"{_PREFIX}_PROTOCOL is {protocol!r}; reverie speaks http/protobuf, and grpc if installed")
    module = "trace_exporter" if signal == "traces" else "metric_exporter"
    try:
        return import_module(f"opentelemetry.exporter.otlp.proto.{kind}.{module}")
    except ImportError:
        if kind == "http":
            raise
        raise InputError(
            f"{_PREFIX}_PROTOCOL is grpc, but opentelemetry-exporter-otlp-proto-grpc is not installed; "
            "install it, or say http/protobuf"
        ) from None
