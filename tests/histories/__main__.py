"""Judge a history: scripts/check-history FILE [--json] [--page PAGE]

Ends with 0: no anomaly that is not allowed, 1: there is one, 2: the file is no history, 3: too little was read to judge.
"""

import argparse
import gc
import sys
from pathlib import Path

import orjson

from tests.histories.analyser.verdict import MALFORMED, judge
from tests.histories.history import MalformedHistoryError, read_file


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/check-history", description=__doc__)
    parser.add_argument("file", type=Path, help="a history, one JSON object a line")
    parser.add_argument("--json", action="store_true", help="print every finding, as JSON")
    given = parser.parse_args()
    gc.disable()  # all that is read is wanted until the end
    try:
        history = read_file(given.file)
    except (MalformedHistoryError, OSError) as e:
        print(e, file=sys.stderr)
        return MALFORMED
    verdict = judge(history)
    if given.json:
        print(orjson.dumps(verdict.document(), option=orjson.OPT_INDENT_2).decode())
    else:
        print("\n".join(verdict.lines()))
    return verdict.exit_code


if __name__ == "__main__":
    sys.exit(main())
