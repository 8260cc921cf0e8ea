"""Run attacks: `python -m tests.hostile PART --count N --seed S`; exit code 1 if one succeeds."""

import argparse
import importlib
import sys

# Each part is a module with a function `attack(count, seed)`, which prints what it does and returns
# what broke, a sentence for each case.
PARTS = {
    "signals": "random signals to the processes of `delan online`",
}


def main() -> int:
    """Run one part and print what broke."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("part", choices=PARTS, help="; ".join(map(": ".join, PARTS.items())))
    parser.add_argument("--count", type=int, default=10, help="number of cases")
    parser.add_argument("--seed", type=int, default=0, help="random seed of the cases")
    given = parser.parse_args()
    attack = importlib.import_module(f"tests.hostile.{given.part}").attack
    broken = attack(given.count, given.seed)
    for sentence in broken:
        print(sentence)
    print(f"{given.part}: {given.count} cases, seed {given.seed}: {len(broken)} broken")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
