import pytest

pytest.register_assert_rewrite("tests.runtime.commit_table")
