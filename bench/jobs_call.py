"""A figure's process: `python -m jobs_call MODULE FUNCTION ARGUMENTS` prints what the function returns, as JSON."""

from __future__ import annotations

import json
import sys
from importlib import import_module

if __name__ == "__main__":
    _, module, function, arguments = sys.argv
    print(json.dumps(getattr(import_module(module), function)(**json.loads(arguments))))
