"""OTLP by the usual variables: what reaches a collector, and what happens without one."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from reverie.errors import InputError
from reverie.events import Event, Listener
from reverie.telemetry.otlp import exported_signals, exporting

pytest.importorskip("opentelemetry.exporter.otlp.proto.http")


class Collector(ThreadingHTTPServer):
    """A collector on loopback that keeps the body of each request by its path."""

    def __init__(self) -> None:
        self.bodies: dict[str, list[bytes]] = {}
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                body = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
                outer.bodies.setdefault(self.path, []).append(body)
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as running:
        thread = threading.Thread(target=running.serve_forever, daemon=True)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.mark.requirement("U6")
def test_the_spans_and_metrics_of_a_session_reach_the_collector(
    collector: Collector, watched_life: Callable[..., list[Event]], monkeypatch: pytest.MonkeyPatch
) -> None:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)  # the exporters read it, too
    said: list[str] = []
    with exporting({"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}, said.append) as listener:
        assert listener is not None
        watched_life(listener)
    assert said == []
    assert set(collector.bodies) == {"/v1/traces", "/v1/metrics"}
    found = [ExportTraceServiceRequest.FromString(body) for body in collector.bodies["/v1/traces"]]
    resource = found[0].resource_spans[0].resource
    assert ("service.name", "reverie") in [(one.key, one.value.string_value) for one in resource.attributes]
    names = {s.name for one in found for r in one.resource_spans for scope in r.scope_spans for s in scope.spans}
    assert "reverie.session" in names


@pytest.mark.requirement("U6")
def test_a_collector_that_is_gone_is_one_warning(
    watched_life: Callable[..., list[Event]], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with Collector() as gone:
        url = gone.url
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    said: list[str] = []
    with exporting({"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_METRICS_EXPORTER": "none"}, said.append) as listener:
        assert listener is not None
        watched_life(listener)
    assert len(said) == 1
    assert said[0].startswith("telemetry was not sent completely")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("environ", "signals"),
    [
        ({}, []),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, ["traces", "metrics"]),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_SDK_DISABLED": "true"}, []),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_TRACES_EXPORTER": "none"}, ["metrics"]),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://x"}, ["metrics"]),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, ["traces"]),
    ],
)
def test_the_usual_variables_choose_what_is_exported(environ: dict[str, str], signals: list[str]) -> None:
    assert exported_signals(environ) == signals


@pytest.mark.parametrize(
    "environ",
    [
        {"OTEL_TRACES_EXPORTER": "zipkin"},
        {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"},
    ],
)
def test_what_cannot_be_exported_is_refused_at_once(environ: dict[str, str]) -> None:
    def begin() -> Listener | None:
        with exporting(environ, print) as listener:
            return listener

    with pytest.raises(InputError, match="OTEL_"):
        begin()
