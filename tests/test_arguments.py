"""A missing extra is named with the command that installs it, before anything is asked."""

from __future__ import annotations

import subprocess
import sys

import pytest

import unsoftmax as us
from unsoftmax.arguments import require_extra
from unsoftmax.errors import InvalidArgument


def test_a_missing_extra_is_named_with_its_command():
    require_extra("http", "this", "json", "math")
    with pytest.raises(InvalidArgument, match=r'needs no_such_package,.*pip install "unsoftmax\[http\]"'):
        require_extra("http", "this", "json", "no_such_package")


def test_http_without_its_extra_says_what_to_install():
    program = (
        "import sys; sys.modules['stamina'] = None; import importlib.util as u; found = u.find_spec;"
        "u.find_spec = lambda name, *a: None if name == 'stamina' else found(name, *a);"
        "import unsoftmax.arguments as arguments; arguments.find_spec = u.find_spec;"
        "import unsoftmax as us\n"
        "try: us.adapters.http('http://127.0.0.1:1', 'm')\n"
        "except us.errors.InvalidArgument as error: sys.stdout.write(str(error))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert 'pip install "unsoftmax[http]"' in done.stdout


def test_a_name_that_is_no_text_is_refused():
    with pytest.raises(us.errors.InvalidArgument, match="`name` must be text"):
        us.oracle(us.models.SingleHead.random(3, seed=1), name=5)
