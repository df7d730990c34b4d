"""Numbers and names of addresses and forms."""

import pytest

from ortoo.common.errors import Invalid
from ortoo.console.web.forms import whole_number
from ortoo.console.web.names import name_before


@pytest.mark.parametrize("text", ["-1", "x", "1.5", "9" * 30, "9" * 5_000])
def test_a_text_that_is_no_number_of_the_range_is_refused(text: str) -> None:
    """Also one that Python refuses to read because it has too many digits."""
    with pytest.raises(Invalid, match="count"):
        whole_number(text, "count")


@pytest.mark.parametrize("name", ["a", "orders", "\ue000", "a\ue000", "\U00010000"])
def test_the_name_before_is_a_text_that_sorts_before(name: str) -> None:
    """Half of a pair of surrogates could not be sent."""
    assert name_before(name) < name
    assert name_before(name).encode()
