"""`python -m tests.hostile models|logs|folders|signals --count N`: attack, report what broke.

Each attack is a module of this package with a class `Trial(folder)`, whose method `attack(number,
seed, outcome)` tries one case. A case depends on its number and the seed alone: `--first` runs it
again.
"""

import argparse
import sys

from . import crew

ATTACKS = {
    "models": "model files whose bytes, fields, arrays and shapes were changed",
    "logs": "logs of every format whose bytes and values were changed",
    "folders": "joined files, data sets, packs and options beside a log that were changed",
    "signals": "random signals to the processes of `delan online`",
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile")
    attacks = parser.add_subparsers(dest="attack", required=True)
    for name, text in ATTACKS.items():
        attack = attacks.add_parser(name, help=text)
        attack.add_argument("--count", type=int, default=200)
        attack.add_argument("--seed", type=int, default=0)
        attack.add_argument("--first", type=int, default=0, help="number of the first case")
        attack.add_argument("--workers", type=int, default=1, help="processes at once")
    chosen = parser.parse_args()
    cases = range(chosen.first, chosen.first + chosen.count)
    outcome = crew.attack(chosen.attack, cases, chosen.seed, chosen.workers)
    print(outcome)
    return 0 if outcome.sound else 1


if __name__ == "__main__":
    sys.exit(main())
