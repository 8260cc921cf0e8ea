"""`python -m tests.hostile models|logs|signals --count N --seed S`: attack, report what broke.

Each attack is a module of this package with a function `attack(count, seed, folder) -> Outcome`.
"""

import argparse
import importlib
import sys
import tempfile
from pathlib import Path

ATTACKS = {
    "models": "model files whose bytes, fields, arrays and shapes were changed",
    "logs": "logs of every format whose bytes and values were changed",
    "signals": "random signals to the processes of `delan online`",
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile")
    attacks = parser.add_subparsers(dest="attack", required=True)
    for name, text in ATTACKS.items():
        attack = attacks.add_parser(name, help=text)
        attack.add_argument("--count", type=int, default=200)
        attack.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    module = importlib.import_module(f"tests.hostile.{chosen.attack}")
    with tempfile.TemporaryDirectory() as folder:
        outcome = module.attack(chosen.count, chosen.seed, Path(folder))
    print(outcome)
    return 0 if outcome.sound else 1


if __name__ == "__main__":
    sys.exit(main())
