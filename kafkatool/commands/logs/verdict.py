"""The report in a sentence or two."""

from kafkatool.commands.logs.report_data import Data, duration


def verdict(data: Data) -> str:
    """The outage in a sentence or two."""
    totals = data["totals"]
    if not totals["partitions"]:
        return "The logs tell nothing about partitions."
    changes = len(data["controllers"]) - 1
    return (
        f"{_without_leader(data)} {_count(totals['leader_changes'], 'leader change')}, "
        f"{_count(totals['isr_shrinks'], 'ISR shrink')}, {_count(totals['failed'], 'failure')}, "
        f"{_count(max(changes, 0), 'controller change')}."
    )


def _without_leader(data: Data) -> str:
    totals = data["totals"]
    without, still = totals["without_leader"], totals["still_without_leader"]
    if without:
        worst = data["partitions"][0]
        end = f"{still} still {'is' if still == 1 else 'are'} at the end." if still else "All have one at the end."
        return (
            f"{without} of {totals['partitions']} partitions were without leader: "
            f"{duration(totals['leaderless_ms'])} in all, at most {duration(totals['longest_leaderless_ms'])} at a time; "
            f"worst {worst['topic']}-{worst['partition']}. {end}"
        )
    if data["visibility"]["offline"]:
        return f"None of {totals['partitions']} partitions was without leader."
    return f"{totals['partitions']} partitions; whether any was without leader is not visible in these logs."


def _count(number: int, what: str) -> str:
    return f"{number or 'no'} {what}{'' if number == 1 else 's'}"
