"""From samples to figures, and from figures to Markdown.

A sample is {"engine", "work": "fill", "prompt" or "decode", "depth", "round", "ns_per_token", ...}. Rounds are what
makes engines comparable: in each one every engine had its turn, under the same load.
"""

import statistics

# The depths between which the slope is taken, if both were measured.
SLOPE_DEPTHS = (1024, 8192)


def middle(values):
    """{"median", "p25", "p75", "n"}, or None of nothing."""
    if not values:
        return None
    p25, median, p75 = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3
    return {"median": median, "p25": p25, "p75": p75, "n": len(values)}


def by_round(samples, engine, work, depth):
    return {s["round"]: s["ns_per_token"] for s in samples
            if (s["engine"], s["work"], s["depth"]) == (engine, work, depth)}


def ratio(numerator, denominator):
    """The ratio of medians, and the middle half of the ratios round by round."""
    common = sorted(numerator.keys() & denominator.keys())
    if not common:
        return None
    spread = middle([numerator[r] / denominator[r] for r in common])
    of_medians = statistics.median(numerator.values()) / statistics.median(denominator.values())
    return {"of_medians": of_medians, "p25": spread["p25"], "p75": spread["p75"], "n": len(common)}


def slope(samples, engine):
    """Nanoseconds that one more cached token adds to a step."""
    shallow, deep = (by_round(samples, engine, "decode", depth) for depth in SLOPE_DEPTHS)
    if not shallow or not deep:
        return None
    tokens = SLOPE_DEPTHS[1] - SLOPE_DEPTHS[0]
    rounds = middle([(deep[r] - shallow[r]) / tokens for r in sorted(shallow.keys() & deep.keys())] or [0.0])
    of_medians = (statistics.median(deep.values()) - statistics.median(shallow.values())) / tokens
    return {"of_medians": of_medians, "p25": rounds["p25"], "p75": rounds["p75"]}


def summarise(samples, engines, depths, reference):
    rows = []
    for engine in engines:
        row = {"engine": engine, "slope_ns": slope(samples, engine), "depths": {}}
        for depth in depths:
            entry = {}
            for work in ("decode", "prompt", "fill"):
                own = by_round(samples, engine, work, depth)
                entry[work + "_ns"] = middle(list(own.values()))
                # Above 1: this engine needs so many times as long as the reference.
                entry[work + "_ratio"] = ratio(own, by_round(samples, reference, work, depth))
            row["depths"][depth] = entry
        rows.append(row)
    return rows


def cell(value, scale=1, digits=2):
    """"7.21 (7.10–7.40)" of a summary."""
    if value is None:
        return "–"
    figures = value.get("median", value.get("of_medians")), value["p25"], value["p75"]
    centre, low, high = (f"{figure / scale:,.{digits}f}" for figure in figures)
    return f"{centre} ({low}–{high})"


def rate(value):
    """Tokens a second of a summary of nanoseconds a token: what took longest is slowest."""
    if value is None:
        return "–"
    centre, high, low = (f"{1e9 / value[name]:,.0f}" for name in ("median", "p25", "p75"))
    return f"{centre} ({low}–{high})" if value["n"] > 1 else centre


def table(title, depths, rows, text_of):
    head = ["engine", *(f"{depth:,}" for depth in depths)]
    lines = [f"### {title}", "", f"| {' | '.join(head)} |", f"| --- |{' ---: |' * len(depths)}"]
    lines += [f"| {row['engine']} | {' | '.join(text_of(row['depths'][depth]) for depth in depths)} |" for row in rows]
    return lines + [""]


def conditions(result):
    yield (f"{result['model']} (SHA-256 {result['model_sha256'][:16]}…), {result['cpu']}, "
           f"{result['threads']} threads, {result['rounds']} rounds, {result['time']}. "
           "Medians, with the middle half in brackets.")
    yield (f"During the run others took {result['load']['other_cpu_pct']} % of the cores, the hypervisor "
           f"{result['load']['steal_pct']} %; load average {result['load_average_begin']:.2f} before, "
           f"{result['load_average_end']:.2f} after.")
    if result["dropped_turns"]:
        yield (f"{result['dropped_turns']} of {len(result['samples'])} turns were dropped, in which others took over "
               f"{result['drop_above_pct']:g} % of the cores.")


def markdown(result):
    rows, depths, reference = result["summary"], result["depths"], result["reference"]
    lines = ["# Peers", "", *conditions(result), ""]
    lines += table("Decode, ms a token, by depth", depths, rows, lambda d: cell(d["decode_ns"], 1e6))
    lines += table(f"Decode, times as long as {reference}", depths, rows, lambda d: cell(d["decode_ratio"]))
    if result["prompt_tokens"]:
        lines += table(f"A prompt of {result['prompt_tokens']} tokens at a depth, tokens a second", depths, rows,
                       lambda d: rate(d["prompt_ns"]))
        lines += table(f"The same prompt, times as long as {reference}", depths, rows,
                       lambda d: cell(d["prompt_ratio"]))
    lines += table("Filling the cache from the depth before, tokens a second, once", depths, rows,
                   lambda d: rate(d["fill_ns"]))
    if any(row["slope_ns"] for row in rows):
        lines += ["### Slope, ns that one more cached token adds to a step", "",
                  f"From depth {SLOPE_DEPTHS[0]:,} to {SLOPE_DEPTHS[1]:,}.", "", "| engine | ns |", "| --- | ---: |"]
        lines += [f"| {row['engine']} | {cell(row['slope_ns'], digits=0)} |" for row in rows] + [""]
    lines += ["### Versions", "", "| engine | version | |", "| --- | --- | --- |"]
    lines += [f"| {name} | {about['version']} {about.get('commit', '')} | {about.get('note', '').replace('|', ',')} |"
              for name, about in result["engines"].items()]
    if result["left_out"]:
        lines += ["", "### Left out", "", *(f"- {name}: {why}" for name, why in result["left_out"].items())]
    return "\n".join(lines) + "\n"
