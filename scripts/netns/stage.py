"""Network namespaces, links, processes and Forebay's own, which all go when the stage is closed, whatever happens.

A process that is started dies with this one (PR_SET_PDEATHSIG), even where this one is killed; namespaces that such a run
has left are taken away by the next one, which knows them by the number in their name.
"""

import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "netns"
PEERS = Path(__file__).resolve().parent / "peers"
PREFIX = "fbdemo"


class Unavailable(Exception):
    """What a check needs is not here: it is n/a."""


class Broken(Exception):
    """A step that checks stand on did not work: the scene ends."""


class Done:
    """What a command has said. `both` is standard output with errors behind it."""

    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err
        self.both = out + err

    def first(self, pattern, absent="?"):
        """What the pattern's group matches first in all that was said."""
        found = re.search(pattern, self.both, re.MULTILINE)
        return found.group(1) if found else absent

    def last_line(self):
        """The last line that says something: mostly the reason."""
        lines = [line.strip() for line in self.both.splitlines() if line.strip()]
        return lines[-1] if lines else f"exit code {self.code}"


def dies_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def strike(process, how):
    """A signal to a command that we have started, and what it has started itself; it may have ended by now."""
    try:
        os.killpg(process.pid, how)
    except ProcessLookupError:
        pass


def call(*words, timeout=30, ok=(0,), text=None):
    """Runs a command to its end; `Broken` where its exit code is none of `ok` (None: any is)."""
    done = attempt(*words, timeout=timeout, text=text)
    if ok is not None and done.code not in ok:
        raise Broken(f"`{' '.join(map(str, words))}`: {done.last_line()}")
    return done


def attempt(*words, timeout=30, text=None):
    """Runs a command to its end, or until its time is over (exit code 124)."""
    words = [str(word) for word in words]
    if not shutil.which(words[0]):
        raise Unavailable(f"there is no {words[0]}")
    process = subprocess.Popen(
        words, stdin=subprocess.PIPE if text is not None else subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True, preexec_fn=dies_with_parent,
    )
    try:
        out, err = process.communicate(text, timeout=timeout)
        return Done(process.returncode, out, err)
    except subprocess.TimeoutExpired:
        strike(process, signal.SIGKILL)
        out, err = process.communicate()
        return Done(124, out, err + f"\nno end within {timeout} s")
    except BaseException:
        strike(process, signal.SIGKILL)
        process.wait()
        raise


class Process:
    """A command that runs beside the others; what it says is in a file."""

    def __init__(self, words, log):
        self.log = log
        self.words = words
        with open(log, "wb") as file, open(f"{log}.out", "wb") as out:
            self.popen = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=out, stderr=file, start_new_session=True,
                preexec_fn=dies_with_parent,
            )

    def said(self):
        return Path(self.log).read_text(errors="replace") + Path(f"{self.log}.out").read_text(errors="replace")

    def wait_for(self, text, timeout=20):
        """Waits until it has said `text`."""
        end = time.monotonic() + timeout
        while True:
            ended = self.popen.poll() is not None
            if text in self.said():
                return self
            if ended:
                raise Broken(f"`{self.words[-1]}` has ended: {Done(1, self.said(), '').last_line()}")
            if time.monotonic() > end:
                raise Broken(f"`{' '.join(self.words)}` has not said '{text}' within {timeout} s")
            time.sleep(0.02)

    def end(self, how=signal.SIGTERM, timeout=20):
        """Ends it; its exit code."""
        if self.popen.poll() is None:
            strike(self.popen, how)
            try:
                self.popen.wait(timeout)
            except subprocess.TimeoutExpired:
                strike(self.popen, signal.SIGKILL)
                self.popen.wait()
        return self.popen.returncode


class Forebay:
    """A pipeline that runs in a namespace."""

    def __init__(self, stage, space, yaml, settings, name=None):
        self.program = stage.options.forebay
        self.socket = str(stage.path(f"{name or space}.socket"))
        sets = [word for setting in settings for word in ("--set", setting)]
        words = [self.program, "run", str(yaml), "--json", "--no-live", "--socket", self.socket, *sets]
        self.process = stage.start(space, *words)
        self.process.wait_for("reach it by", timeout=30)
        self.report = None

    def ask(self, *words, ok=(0,)):
        """Runs `forebay` with its socket: `show`, `table`, `reload`."""
        return call(self.program, *words, "--socket", self.socket, ok=ok)

    def drops(self):
        """How many packets went for which reason, so far."""
        packets = json.loads(self.ask("show", "drops", "--json").out)
        return packets["dropped"]

    def end(self):
        """Ends it as Ctrl-C does; its summary."""
        code = self.process.end(signal.SIGINT)
        if code != 0:
            raise Broken(f"forebay ended with {code}: {Done(code, '', self.process.said()).last_line()}")
        self.report = json.loads(Path(f"{self.process.log}.out").read_text().strip().splitlines()[-1])
        return self.report


class Stage:
    """What a scene stands on."""

    def __init__(self, options):
        self.options = options
        self.spaces = []
        self.processes = []
        self.folder = tempfile.TemporaryDirectory(prefix=f"{PREFIX}-{os.getpid()}-")
        self.count = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        # Nothing interrupts the tidying up.
        before = {which: signal.signal(which, signal.SIG_IGN) for which in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
        for process in reversed(self.processes):
            process.end(signal.SIGINT, timeout=5)
        for space in self.spaces:
            subprocess.run(["ip", "netns", "del", self.named(space)], stderr=subprocess.DEVNULL, check=False)
        self.folder.cleanup()
        for which, handler in before.items():
            signal.signal(which, handler)

    def path(self, name):
        return Path(self.folder.name) / name

    def named(self, space):
        return f"{PREFIX}-{os.getpid()}-{space}"

    def namespace(self, space):
        """A namespace in which interfaces have no IPv6 addresses by themselves and nothing is forwarded."""
        self.spaces.append(space)
        call("ip", "netns", "add", self.named(space))
        self.call(space, "sysctl", "-qw", "net.ipv6.conf.default.accept_dad=0", "net.ipv6.conf.all.accept_dad=0",
                  "net.ipv6.conf.default.accept_ra=0")
        self.ip(space, "link set lo up")

    def forwarder(self, space):
        """A namespace in whose traffic the host's stack has no part: Forebay's, or a bridge's."""
        self.namespace(space)
        self.call(space, "sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1", "net.ipv6.conf.all.disable_ipv6=1")

    def bridge(self, space, name):
        """A namespace with a bridge, which says nothing by itself: one that looks for multicast groups joins some (IGMP, MLD)."""
        self.forwarder(space)
        self.ip(space, f"link add {name} type bridge mcast_snooping 0")
        self.ip(space, f"link set {name} up")

    def router(self, space):
        """A namespace whose kernel forwards, and tells of every packet that it does not."""
        self.namespace(space)
        self.call(space, "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1",
                  "net.ipv4.icmp_ratelimit=0", "net.ipv6.icmp.ratelimit=0")

    def link(self, one, other, mtu=1500):
        """A veth pair between two `(namespace, interface)`."""
        (space, name), (far, far_name) = one, other
        call("ip", "link", "add", name, "mtu", mtu, "netns", self.named(space), "type", "veth",
             "peer", "name", far_name, "mtu", mtu, "netns", self.named(far))
        self.ip(space, f"link set {name} up")
        self.ip(far, f"link set {far_name} up")

    def ip(self, space, words, ok=(0,)):
        return call("ip", "-n", self.named(space), *words.split(), ok=ok)

    def address(self, space, interface, *addresses):
        for address in addresses:
            self.ip(space, f"addr add {address} dev {interface}" + (" nodad" if ":" in address else ""))

    def call(self, space, *words, **more):
        """Runs a command in a namespace, which must go well."""
        return call("ip", "netns", "exec", self.named(space), *words, **more)

    def attempt(self, space, *words, **more):
        """Runs a command in a namespace."""
        if not shutil.which(str(words[0])):
            raise Unavailable(f"there is no {words[0]}")
        return attempt("ip", "netns", "exec", self.named(space), *words, **more)

    def until(self, holds, what, timeout=30):
        """Waits until `holds()`."""
        end = time.monotonic() + timeout
        while not holds():
            if time.monotonic() > end:
                raise Broken(f"it takes more than {timeout} s until {what}")
            time.sleep(0.05)

    def start(self, space, *words):
        """Starts a command in a namespace."""
        if not shutil.which(str(words[0])):
            raise Unavailable(f"there is no {words[0]}")
        self.count += 1
        words = ["ip", "netns", "exec", self.named(space), *map(str, words)]
        process = Process(words, str(self.path(f"{self.count}-{space}.log")))
        self.processes.append(process)
        return process

    def peer(self, space, program, *words):
        """Starts one of the programs in `peers/`, and waits until it says that it is ready."""
        return self.start(space, sys.executable, PEERS / program, *words).wait_for("ready")

    def forebay(self, space, yaml, *settings, name=None):
        """Starts a pipeline; `name` is its socket's, where a namespace has several."""
        return Forebay(self, space, yaml, settings, name)


def remove_leftovers():
    """Takes away what runs have left that were killed."""
    listed = attempt("ip", "netns", "list").out
    for name in re.findall(rf"^{PREFIX}-\d+-[\w-]+", listed, re.MULTILINE):
        if is_gone(name):
            attempt("ip", "netns", "del", name)
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}-*"):
        if is_gone(folder.name):
            shutil.rmtree(folder, ignore_errors=True)


def is_gone(name):
    """Whether the run is gone that has given something this name."""
    return not Path(f"/proc/{name.split('-')[1]}").exists()
