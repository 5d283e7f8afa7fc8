"""Writes cases of promtool again, with every series twice, as a pair of Prometheus servers behind one query layer has them.

    python3 dashboards/tests/e2e/doubled.py --cases dashboards/alerts_cases_test.yml --rules dashboards --to doubled.yml
"""

import argparse
import os
import re


def doubled(text, rules):
    text = text.replace("rule_files: [alerts.yml, recording_rules.yml]",
                        f"rule_files: [{os.path.abspath(rules)}/alerts.yml, {os.path.abspath(rules)}/recording_rules.yml]")
    # Alert texts count callers, and these series are there twice, so texts are not compared.
    text = re.sub(r"    alert_rule_test:\n(?:      .*\n)*", "", text)

    def pair(found):
        series, values = found.groups()
        copies = [series] if "prometheus_replica" in series else [f'{series}, prometheus_replica="{name}"' for name in "xy"]
        return "".join(f"      - series: '{copy}}}'\n        values: '{values}'\n" for copy in copies)

    text, count = re.subn(r"      - series: '([^']*)}'\n        values: '([^']*)'\n", pair, text)
    if not count:
        raise SystemExit("no series to double")
    return text


def main():
    arguments = argparse.ArgumentParser()
    for name in ["cases", "rules", "to"]:
        arguments.add_argument("--" + name, required=True)
    options = arguments.parse_args()
    with open(options.cases, encoding="utf-8") as file:
        text = doubled(file.read(), options.rules)
    with open(options.to, "w", encoding="utf-8") as file:
        file.write(text)


if __name__ == "__main__":
    main()
