"""Network namespaces, links and processes (Forebay's included), which are always removed when the stage is closed.

A started process ends with this process (PR_SET_PDEATHSIG), even if this process is killed. The next run removes the
namespaces of a killed run. It recognises them by the process ID in their names.
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
    """A requirement of a check is missing: the check is n/a."""


class Broken(Exception):
    """A step that checks depend on failed: the scene ends."""


class Done:
    """The output of a command. `both` is standard output followed by standard error."""

    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err
        self.both = out + err

    def first(self, pattern, absent="?"):
        """Returns the first match of the pattern's group in the output."""
        found = re.search(pattern, self.both, re.MULTILINE)
        return found.group(1) if found else absent

    def last_line(self):
        """Returns the last line that is not empty: usually the reason of a failure."""
        lines = [line.strip() for line in self.both.splitlines() if line.strip()]
        return lines[-1] if lines else f"exit code {self.code}"


def dies_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def strike(process, how):
    """Sends a signal to a started command and its own processes; it may have ended already."""
    try:
        os.killpg(process.pid, how)
    except ProcessLookupError:
        pass


def call(*words, timeout=30, ok=(0,), text=None):
    """Runs a command to its end. Raises `Broken` if its exit code is not in `ok` (None: any code is accepted)."""
    done = attempt(*words, timeout=timeout, text=text)
    if ok is not None and done.code not in ok:
        raise Broken(f"`{' '.join(map(str, words))}`: {done.last_line()}")
    return done


def attempt(*words, timeout=30, text=None):
    """Runs a command to its end, or until its time limit (exit code 124)."""
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
    """A command in the background, with its output in a file."""

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
        """Waits until it has printed `text`."""
        end = time.monotonic() + timeout
        while True:
            ended = self.popen.poll() is not None
            if text in self.said():
                return self
            if ended:
                raise Broken(f"`{self.words[-1]}` has ended: {Done(1, self.said(), '').last_line()}")
            if time.monotonic() > end:
                raise Broken(f"`{' '.join(self.words)}` has not printed '{text}' within {timeout} s")
            time.sleep(0.02)

    def end(self, how=signal.SIGTERM, timeout=20):
        """Ends it and returns its exit code."""
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
        """Returns the dropped packets so far, by reason."""
        packets = json.loads(self.ask("show", "drops", "--json").out)
        return packets["dropped"]

    def end(self):
        """Ends it like Ctrl-C does, and returns its summary."""
        code = self.process.end(signal.SIGINT)
        if code != 0:
            raise Broken(f"forebay ended with {code}: {Done(code, '', self.process.said()).last_line()}")
        self.report = json.loads(Path(f"{self.process.log}.out").read_text().strip().splitlines()[-1])
        return self.report


class Stage:
    """The namespaces, links and processes of a scene."""

    def __init__(self, options):
        self.options = options
        self.spaces = []
        self.processes = []
        self.folder = tempfile.TemporaryDirectory(prefix=f"{PREFIX}-{os.getpid()}-")
        self.count = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        # Signals do not interrupt the cleanup.
        before = {which: signal.signal(which, signal.SIG_IGN)
                  for which in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
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
        """Creates a namespace without automatic IPv6 addresses and without forwarding."""
        self.spaces.append(space)
        call("ip", "netns", "add", self.named(space))
        self.call(space, "sysctl", "-qw", "net.ipv6.conf.default.accept_dad=0", "net.ipv6.conf.all.accept_dad=0",
                  "net.ipv6.conf.default.accept_ra=0")
        self.ip(space, "link set lo up")

    def forwarder(self, space):
        """Creates a namespace in which the host's stack does not take part in the traffic: for Forebay or a bridge."""
        self.namespace(space)
        self.call(space, "sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1", "net.ipv6.conf.all.disable_ipv6=1")

    def bridge(self, space, name):
        """Creates a namespace with a bridge that sends no packets of its own: multicast snooping (IGMP, MLD) is off."""
        self.forwarder(space)
        self.ip(space, f"link add {name} type bridge mcast_snooping 0")
        self.ip(space, f"link set {name} up")

    def router(self, space):
        """Creates a namespace whose kernel forwards packets, and sends an ICMP error for every packet that it cannot
        forward."""
        self.namespace(space)
        self.call(space, "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1",
                  "net.ipv4.icmp_ratelimit=0", "net.ipv6.icmp.ratelimit=0")

    def link(self, one, other, mtu=1500):
        """Creates a veth pair between two `(namespace, interface)`."""
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
        """Runs a command in a namespace; it must succeed."""
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
                raise Broken(f"more than {timeout} s passed before {what}")
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
        """Starts one of the programs in `peers/`, and waits until it is ready."""
        return self.start(space, sys.executable, PEERS / program, *words).wait_for("ready")

    def forebay(self, space, yaml, *settings, name=None):
        """Starts a pipeline; `name` names its socket if a namespace has several."""
        return Forebay(self, space, yaml, settings, name)


def remove_leftovers():
    """Removes the namespaces and folders of killed runs."""
    listed = attempt("ip", "netns", "list").out
    for name in re.findall(rf"^{PREFIX}-\d+-[\w-]+", listed, re.MULTILINE):
        if is_gone(name):
            attempt("ip", "netns", "del", name)
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}-*"):
        if is_gone(folder.name):
            shutil.rmtree(folder, ignore_errors=True)


def is_gone(name):
    """True if the run that used this name has ended."""
    return not Path(f"/proc/{name.split('-')[1]}").exists()
