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
        except Exception as error:
            failed += 1
            why = (str(error).splitlines() or [""])[0]
            print(f"FAILED {feature}: {type(error).__name__}: {why}", flush=True)
            traceback.print_exc()
    sys.exit(1 if failed else 0)
