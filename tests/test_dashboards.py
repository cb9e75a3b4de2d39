"""Dashboards and alerts ask for metrics that there are, by the names that Prometheus has for
them: those of OpenTelemetry's own exporter, and not a table of ours."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from inspect import signature
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml  # type: ignore[import-untyped]
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import CollectorRegistry

import awa_trio as awa
from awa_trio import events
from awa_trio.telemetry import Telemetry, _names

DEPLOY = Path(__file__).parents[1] / "examples" / "deploy"

#: What whoever scrapes adds, and Prometheus itself.
SCRAPED = {"instance", "le"}

#: What Grafana puts in place of its variables.
VARIABLES = {"$__rate_interval": "5m", "$queue": ".*"}

#: Attributes of which we know all values.
VALUES = {
    "awa_trio_job_state": {str(state) for state in awa.JobState},
    "awa_trio_attempt_ending": {str(ending) for ending in events.Ending},
    "awa_trio_reason": {lost.name.lower() for lost in events.Lost},
}


@pytest.fixture(scope="module")
def exported() -> Iterator[dict[str, set[str]]]:
    """Every series of every instrument, as Prometheus scrapes it, with its labels."""
    if "registry" not in signature(PrometheusMetricReader).parameters:
        pytest.skip("this exporter has one registry for all")
    registry = CollectorRegistry()
    meters = MeterProvider([PrometheusMetricReader(registry=registry)], shutdown_on_exit=False)
    telemetry = Telemetry(meter_provider=meters)
    metrics = telemetry._metrics
    for one in _names.INSTRUMENTS:
        attributes = dict.fromkeys(one.attributes, "x")
        if one.kind == "counter":
            metrics._count(one, attributes)
        elif one.kind == "histogram":
            metrics._record(one, 1.0, attributes)
    queue = events.QueueSample("x", slots=1, slots_in_use=1, due=1, oldest=1.0)
    telemetry.observe(
        events.Sampled(
            1, (queue,), running=1, overdue=1, waiting=1, finalizing=1, listening=True
        )
    )
    yield {
        sample.name: {label for label in sample.labels if not label.startswith("otel_")}
        for metric in registry.collect()
        for sample in metric.samples
    }
    meters.shutdown()


def _dashboard() -> Iterator[tuple[str, str]]:
    for panel in json.loads((DEPLOY / "grafana.json").read_text())["panels"]:
        for target in panel.get("targets", ()):
            asked = target["expr"]
            for variable, value in VARIABLES.items():
                asked = asked.replace(variable, value)
            yield f"{panel['title']}: {target['legendFormat']}", asked


def _alerts() -> Iterator[tuple[str, str]]:
    for group in yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"]


ASKED = [*_dashboard(), *_alerts()]


def asks(query: str) -> tuple[list[Any], set[str]]:
    """The selectors of a query, and the labels that it groups or matches by."""
    selectors: list[Any] = []
    labels: set[str] = set()

    def see(node: Any) -> None:
        if isinstance(node, promql_parser.VectorSelector):
            selectors.append(node)
        if (modifier := getattr(node, "modifier", None)) is not None:
            labels.update(getattr(modifier, "labels", ()))
            matching = getattr(modifier, "matching", None)
            labels.update(getattr(matching, "labels", ()))

    promql_parser.walk(promql_parser.parse(query), see, lambda _: None)
    return selectors, labels


@pytest.mark.parametrize("query", [q for _, q in ASKED], ids=[name for name, _ in ASKED])
def test_it_asks_for_what_there_is(query: str, exported: dict[str, set[str]]) -> None:
    selectors, labels = asks(query)
    assert selectors
    for selector in selectors:
        assert selector.name in exported
        for matcher in selector.matchers.matchers:
            assert matcher.name in exported[selector.name]
            if matcher.name in VALUES:
                assert set(matcher.value.split("|")) <= VALUES[matcher.name]
    found = set().union(*(exported[selector.name] for selector in selectors))
    assert labels <= found | SCRAPED


def test_the_dashboard_shows_every_metric(exported: dict[str, set[str]]) -> None:
    shown = {selector.name for _, query in _dashboard() for selector in asks(query)[0]}
    ours = {
        name
        for name in exported
        if name.startswith("awa_trio_") and not name.endswith(("_sum", "_count", "_created"))
    }
    assert len(ours) == len(_names.INSTRUMENTS)
    assert ours <= shown


def test_every_label_of_a_text_is_one_that_the_query_leaves() -> None:
    rules = yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"][0]["rules"]
    for rule in rules:
        quoted = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        assert quoted <= asks(rule["expr"])[1], rule["alert"]
    for panel in json.loads((DEPLOY / "grafana.json").read_text())["panels"]:
        for target in panel.get("targets", ()):
            quoted = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            assert quoted <= set(re.findall(r"\w+", target["expr"])), panel["title"]


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in json.loads((DEPLOY / "grafana.json").read_text())["panels"]:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken
        assert max(x for x, _ in cells) < 24
        taken |= cells
