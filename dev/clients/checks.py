"""What the checks of Python clients share: each is a function with a name, and prints a line."""

import sys
import traceback

CHECKS = []


def check(feature):
    """Marks a function as the check of a feature, by the name that the table of clients has."""

    def mark(function):
        CHECKS.append((feature, function))
        return function

    return mark


def equal(found, expected):
    if found != expected:
        raise AssertionError(f"found {found!r}, expected {expected!r}")


def main():
    failed = 0
    for feature, function in CHECKS:
        try:
            function()
            print(f"ok {feature}", flush=True)
        except Exception:
            failed += 1
            lines = traceback.format_exc().strip().splitlines()
            print(f"FAILED {feature}: {lines[-1]}", flush=True)
            print("\n".join(lines), file=sys.stderr, flush=True)
    sys.exit(1 if failed else 0)
