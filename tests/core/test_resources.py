"""Which resources are opened, in which order, for whom; or why they cannot be."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, NewType

import pytest

from awa_trio._core.errors import ConfigurationError
from awa_trio._core.registry import Registry, Task
from awa_trio._core.request import KindDefaults
from awa_trio._core.resources import Resource, Wiring


class A: ...


class B: ...


class C: ...


class SubA(A): ...


class HttpClient: ...


Token = NewType("Token", str)


class Args: ...


class SubArgs(Args): ...


@asynccontextmanager
async def opens() -> AsyncIterator[None]:
    yield


def resource(key: Any, *requests: Any, scope: Any = "worker", **more: Any) -> Resource:
    name = f"open_{key.__name__.lower()}"
    named = {f"p{n}": request for n, request in enumerate(requests)}
    return Resource(key=key, name=name, scope=scope, open=opens, requests=named, **more)


def wire(
    resources: list[Resource],
    tasks: Mapping[str, list[Any]],
    given: Mapping[Any, Any] | None = None,
    kinds: list[str] | None = None,
    args: Any = dict,
) -> Wiring:
    registry = Registry()

    def handle() -> None: ...

    for one in resources:
        registry.provide(one)
    for kind, keys in tasks.items():
        registry.tasks[kind] = Task(
            kind=kind,
            args_type=args,
            handler=handle,
            defaults=KindDefaults("default", 2, 25, args),
            requests={f"q{n}": key for n, key in enumerate(keys)},
        )
    return registry.wire(given, kinds)


def keys(resources: tuple[Resource, ...]) -> list[Any]:
    return [one.key for one in resources]


def test_nothing_is_opened_that_nothing_requests() -> None:
    wiring = wire([resource(A), resource(B)], {"one": [B], "none": []})
    assert keys(wiring.worker) == [B]
    assert wiring.attempts == {}


def test_those_registered_first_open_first_but_after_what_they_use() -> None:
    registered = [resource(A, C), resource(B), resource(C)]
    wiring = wire(registered, {"one": [B], "two": [A]})
    assert keys(wiring.worker) == [C, A, B]


def test_an_attempts_resources_use_a_workers() -> None:
    registered = [
        resource(A, B, C, scope="attempt"),
        resource(B, scope="attempt"),
        resource(C),
        resource(Token, scope="attempt"),
    ]
    wiring = wire(registered, {"one": [A], "two": [C], "three": [B, C]})
    assert keys(wiring.worker) == [C]
    assert {kind: keys(opened) for kind, opened in wiring.attempts.items()} == {
        "one": [B, A],
        "three": [B],
    }


def test_what_two_use_is_opened_once() -> None:
    wiring = wire([resource(A, C), resource(B, C), resource(C)], {"one": [A, B]})
    assert keys(wiring.worker) == [C, A, B]


def test_only_the_kinds_that_will_run_count() -> None:
    wiring = wire([resource(A), resource(B)], {"one": [A], "two": [B]}, kinds=["two"])
    assert keys(wiring.worker) == [B]


def test_an_instance_that_is_given_stands_in_for_a_resource_and_what_only_that_uses() -> None:
    registered = [resource(A, C, scope="attempt"), resource(B), resource(C)]
    a = A()
    wiring = wire(registered, {"one": [A, B]}, {A: a})
    assert keys(wiring.worker) == [B]
    assert wiring.attempts == {}
    assert wiring.given[A] is a


def test_it_may_be_all_there_is() -> None:
    assert wire([], {"one": [A]}, {A: A()}).worker == ()


def make_circle(*links: tuple[Any, Any], **options: Any) -> list[Resource]:
    return [resource(a, b, **options) for a, b in links]


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        pytest.param(
            lambda: wire([], {"one": [A]}),
            r"^handler .*handle requests A as its parameter 'q0', and no resource provides that;"
            r" register one with @app\.resource, or give resources=\{\.\.\.\}$",
            id="unknown",
        ),
        pytest.param(
            lambda: wire([resource(HttpClient)], {"one": [type("HttpClent", (), {})]}),
            r"\(did you mean HttpClient\?\)",
            id="nearest by name",
        ),
        pytest.param(
            lambda: wire([resource(B), resource(SubA)], {"one": [A]}),
            r"looked up by the exact type; did you mean SubA\?",
            id="nearest by class",
        ),
        pytest.param(
            lambda: wire([resource(A, B)], {"one": [A]}),
            "^resource open_a requests B as its parameter 'p0', and no resource provides that",
            id="unknown to a resource",
        ),
        pytest.param(
            lambda: wire(make_circle((A, B), (B, C), (C, A)), {"one": [A]}),
            r"circle: A \(open_a\) uses B \(open_b\) uses C \(open_c\) uses A \(open_a\); open what",
            id="circle",
        ),
        pytest.param(
            lambda: wire(
                [resource(Token, A), *make_circle((A, B), (B, A), scope="attempt")],
                {"one": [Token]},
            ),
            r"circle: A \(open_a\) uses B \(open_b\) uses A \(open_a\);",
            id="circle behind another",
        ),
        pytest.param(
            lambda: wire(make_circle((A, A)), {"one": [A]}),
            r"circle: A \(open_a\) uses A \(open_a\);",
            id="circle of one",
        ),
        pytest.param(
            lambda: wire([resource(A, B), resource(B, scope="attempt")], {"one": [A]}),
            r"^resource A \(open_a\) lives as long as the worker and cannot use B \(open_b\),"
            " which lives as long as an attempt; give open_a scope='attempt'",
            id="a worker's uses an attempt's",
        ),
        pytest.param(
            lambda: wire(
                [resource(A, B), resource(B, scope="attempt")], {"one": [B], "two": [A]}
            ),
            "cannot use",
            id="a worker's uses an attempt's that another task requested first",
        ),
        pytest.param(
            lambda: wire([resource(A)], {"one": [A]}, {HttpClient: 1}),
            "nothing requests HttpClient$",
            id="given and not requested",
        ),
        pytest.param(
            lambda: wire([], {"one": [A]}, {SubA: 1, A: 1}),
            r"nothing requests SubA \(it is looked up by the exact type; did you mean A\?\)",
            id="given as a subclass",
        ),
        pytest.param(
            lambda: wire([resource(A), resource(A)], {}),
            "A is provided twice, by open_a and open_a; give one of them a type of its own",
            id="twice",
        ),
        pytest.param(
            lambda: wire(
                [resource(A, scope="attempt", job_parameter="job", job_args=SubArgs)],
                {"one": [A]},
                args=Args,
            ),
            r"runs jobs of Args and requests resource A \(open_a\), whose parameter 'job' takes"
            r" jobs of SubArgs; annotate that with Job\[Any\]",
            id="another job",
        ),
    ],
)
def test_what_cannot_be_opened_is_said_before_anything_is(
    make: Callable[[], Wiring], problem: str
) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        make()


@pytest.mark.parametrize("takes", [None, Args, SubArgs])
def test_a_resource_may_take_the_job_of_a_subclass(takes: Any) -> None:
    one = resource(A, scope="attempt", job_parameter="job", job_args=takes)
    assert keys(wire([one], {"one": [A]}, args=SubArgs).attempts["one"]) == [A]


def test_an_attempts_resource_is_checked_for_each_task_that_requests_it_through_another() -> (
    None
):
    inner = resource(A, scope="attempt", job_parameter="job", job_args=SubArgs)
    with pytest.raises(ConfigurationError, match="whose parameter 'job' takes jobs of SubArgs"):
        wire([resource(B, A, scope="attempt"), inner], {"one": [B]}, args=Args)
