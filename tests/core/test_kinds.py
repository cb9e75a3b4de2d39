"""The kind of a job, from the name of its class."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from awa_trio._core.errors import ConfigurationError
from awa_trio._core.kinds import kind_of

T = TypeVar("T")


class Page(Generic[T]):
    class FirstPage:
        pass


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("SendEmail", "send_email"),
        ("SMTPEmail", "smtp_email"),
        ("OAuthRefresh", "o_auth_refresh"),
        ("PDFRenderJob", "pdf_render_job"),
        ("ProcessV2Import", "process_v2_import"),
        ("ReconcileQ3Revenue", "reconcile_q3_revenue"),
        ("HTMLToPDF", "html_to_pdf"),
        ("IOError", "io_error"),
        ("A", "a"),
        ("already_snake", "already_snake"),
        ("Snake_Case", "snake_case"),
        ("_Private", "private"),
        ("Trailing_", "trailing"),
        ("ÜberMail", "über_mail"),
        ("HTTP2", "http2"),
    ],
)
def test_golden_cases(name: Any, kind: Any) -> None:
    assert kind_of(type(name, (), {})) == kind


def test_only_the_name_of_the_class_itself_counts() -> None:
    assert kind_of(Page.FirstPage) == "first_page"
    assert kind_of(Page[int]) == kind_of(Page) == "page"


@pytest.mark.parametrize("unnamed", [type("_", (), {}), type("__", (), {}), int | None, "Text"])
def test_what_has_no_name_is_refused(unnamed: Any) -> None:
    with pytest.raises(ConfigurationError, match="kind="):
        kind_of(unnamed)


@given(st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,20}", fullmatch=True))
def test_a_kind_is_lower_case_says_the_same_and_stays_itself(name: Any) -> None:
    kind = kind_of(type(name, (), {}))

    assert kind == kind.lower()
    assert kind.replace("_", "") == name.replace("_", "").lower()
    assert kind_of(type(kind, (), {})) == kind
