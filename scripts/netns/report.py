"""The results of checks: one line for each as soon as it is known, and a summary."""

import re

from stage import Broken, Unavailable


class Report:
    """The results of a run."""

    def __init__(self):
        self.counts = {"PASS": 0, "FAIL": 0, "n/a": 0}
        self.scene = ""

    def line(self, what, verdict, seen):
        self.counts[verdict] += 1
        seen = re.sub(r"\s+", " ", str(seen)).strip()
        print(f"{self.scene:<10} {what:<46} {verdict:<4}  {seen}", flush=True)

    def check(self, what, passed, seen):
        """Reports the result of a check and the observation."""
        self.line(what, "PASS" if passed else "FAIL", seen)

    def missing(self, what, reason):
        """Reports a check that is not possible on this system."""
        self.line(what, "n/a", reason)

    def of(self, what, how):
        """Runs a check: `how()` returns whether it passed, and the observation."""
        try:
            self.check(what, *how())
        except Unavailable as reason:
            self.missing(what, reason)
        except Broken as reason:
            self.check(what, False, reason)

    def balanced(self, forebay, what="every packet is accounted for"):
        """Checks `in + created = out + dropped + consumed + queued + held + in flight` in the final summary of the
        run."""
        report = forebay.end()
        packets = report["packets"]
        made, lost, used = (sum(packets[key].values()) for key in ("created", "dropped", "consumed"))
        rest = packets["queued"] + packets["held"] + packets["in_flight"]
        balance = packets["in"] + made == packets["out"] + lost + used + rest and rest == 0
        received = sum(port["received"] for port in report["ports"])
        sent = sum(port["sent"] for port in report["ports"])
        seen = (f"{packets['in']} in + {made} created = {packets['out']} out + {lost} dropped + {used} consumed"
                + (f" + {rest} still inside" if rest else ""))
        for key, of in (("dropped", "lost before they entered"), ("errors", "errors")):
            count = sum(port[key] for port in report["ports"])
            seen += f"; {count} {of}" if count else ""
        why = ", ".join(f"{reason} {count}" for reason, count in sorted(packets["dropped"].items()) if count)
        seen += f" ({why})" if why else ""
        self.check(what, balance and received == packets["in"] and sent == packets["out"], seen)
        return report

    def summary(self):
        """Prints the summary and returns the exit code."""
        passed, failed, none = self.counts["PASS"], self.counts["FAIL"], self.counts["n/a"]
        print(f"{passed} passed, {failed} failed, {none} n/a", flush=True)
        return 1 if failed else 0


