"""What functions say that refuse something: :func:`refusal`."""

import pytest


def refusal(error, function, *arguments, **options):
    """Return the one line of the error with which a function refuses its arguments."""
    with pytest.raises(error) as caught:
        function(*arguments, **options)
    line = str(caught.value)
    assert '\n' not in line, line
    return line
