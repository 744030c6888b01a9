#!/usr/bin/env python3
"""Prints the ledgers of two `kvant run --stats` files side by side, with the ratio of the second to the first.

usage: ledger_table.py A.json B.json
"""

import json
import pathlib
import sys

ROWS = [  # field, unit shown, what the shown number is divided by
    ("code_bytes", "MiB", 2**20),
    ("metadata_bytes", "MiB", 2**20),
    ("window_bytes", "MiB", 2**20),
    ("sink_bytes", "MiB", 2**20),
    ("padding_bytes", "MiB", 2**20),
    ("kv_bytes", "MiB", 2**20),
    ("allocated_bytes", "MiB", 2**20),
    ("effective_bits", "bits/value", 1),
    ("kv_bytes_read_per_token", "MiB", 2**20),
    ("weight_bytes_read_per_token", "MiB", 2**20),
    ("prefill_tokens_per_s", "tokens/s", 1),
    ("decode_tokens_per_s", "tokens/s", 1),
    ("decode_GBps", "GB/s", 1),
    ("read_bw_GBps", "GB/s", 1),
]


def number(value, divisor):
    return "-" if value is None else f"{value / divisor:,.2f}"


def same_tokens(first, second):
    """How many tokens agree before the first that differs."""
    count = 0
    for a, b in zip(first, second):
        if a != b:
            break
        count += 1
    return count


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: ledger_table.py A.json B.json")
    paths = [pathlib.Path(arg) for arg in sys.argv[1:]]
    runs = [json.loads(path.read_text()) for path in paths]
    print(f"{'':28}{'':12}{paths[0].stem:>14}{paths[1].stem:>14}{'ratio':>8}")
    for field, unit, divisor in ROWS:
        values = [run["ledger"].get(field) for run in runs]
        ratio = f"{values[1] / values[0]:.2f}" if all(values) else "-"
        cells = "".join(f"{number(value, divisor):>14}" for value in values)
        print(f"{field.removesuffix('_bytes'):28}{unit:12}{cells}{ratio:>8}")
    tokens = [run["tokens"] for run in runs]
    print(f"\nThe first {same_tokens(*tokens)} of {len(tokens[0])} generated tokens agree.")


if __name__ == "__main__":
    main()
