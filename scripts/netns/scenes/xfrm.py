"""the kernel's own ESP as the other end of a tunnel (scripts/interop-xfrm, examples/vpn-site.yaml)"""

from stage import ROOT, attempt

# It creates its own namespaces and TAP devices.
PORTS = []


def play(stage, report, _):
    done = attempt(ROOT / "scripts/interop-xfrm", stage.options.forebay, timeout=300)
    what = "pings of all lengths through ip xfrm, both ways"
    reason = done.first(r"^n/a: (.*)$", "")
    if reason:
        return report.missing(what, reason)
    report.check(what, done.code == 0, done.last_line())
