# Runs in the guest of scripts/test-vm, as root: installs, upgrades and removes the package in /share/files. See
# scripts/test-vm-install.
set -eu
cd /share/files
export DEBIAN_FRONTEND=noninteractive
url=http://127.0.0.1:9640

ok() { echo "  ok    $*"; }
fail() {
    echo "  FAIL  $*"
    systemctl --no-pager --lines=0 status forebay-serve 'forebay@*' || true
    journalctl --no-pager -n 40 -u forebay-serve -u 'forebay@*' | cut -c1-300 || true
    exit 1
}
# Waits until a command succeeds. The guest is slow, so the limit is generous.
until_true() {
    what=$1
    shift
    tries=0
    until "$@" >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ "$tries" -lt 1200 ] || fail "$what"
        sleep 0.5
    done
    ok "$what"
}
check() {
    what=$1
    shift
    "$@" >/dev/null 2>&1 || fail "$what"
    ok "$what"
}
property() { systemctl show -P "$2" "$1"; }
has_property() { [ "$(property "$1" "$2")" = "$3" ]; }
# A unit property that is not the given value any more.
has_changed() { [ "$(property "$1" "$2")" != "$3" ] && [ "$(property "$1" ActiveState)" = active ]; }
is_listed() { curl -s "$url/api/v1/instances" | python3 -c '
import json, sys
found = [it for it in json.load(sys.stdin)["instances"] if it["name"] == sys.argv[1] and it["status"] == "running"]
sys.exit(not found)' "$1"; }
# The files of the host, without those that the package manager and the system keep for themselves.
files() {
    find / -xdev \( -path /proc -o -path /sys -o -path /run -o -path /tmp -o -path /root -o -path /share -o -path /dev \
        -o -path /var/lib/dpkg -o -path /var/lib/apt -o -path /var/cache -o -path /var/log/apt -o -path /var/log/dpkg.log \
        -o -path /var/log/journal \
        -o -path /var/lib/systemd/deb-systemd-helper-enabled -o -path /var/tmp \) -prune -o -print | sort
}

# The guest is emulated, and the host may be busy: starts may take longer than systemd allows by default, and a worker
# may not run for longer than the units allow.
mkdir -p /etc/systemd/system.conf.d
printf '[Manager]\nDefaultTimeoutStartSec=900\n' >/etc/systemd/system.conf.d/slow.conf
for unit in forebay@ forebay-serve; do
    mkdir -p "/etc/systemd/system/$unit.service.d"
    printf '[Service]\nWatchdogSec=120\n' >"/etc/systemd/system/$unit.service.d/slow.conf"
done
systemctl daemon-reexec

files >/root/before
mkdir /root/first /root/second
cp first/*.deb /root/first/
cp second/*.deb /root/second/

echo "== install: the commands of docs/install.md"
cat install
(cd /root/first && sh -ex /share/files/install) || fail "the commands succeed"
check "the page answers" sh -c "curl -sf $url/ | grep -q '<title>'"
check "the readiness of the server" curl -sf "$url/readyz"
until_true "the server lists edge" is_listed edge
for unit in forebay-serve forebay@edge; do
    check "$unit is active" has_property "$unit" ActiveState active
    check "$unit is enabled" has_property "$unit" UnitFileState enabled
    check "$unit has a watchdog" sh -c "! systemctl show -P WatchdogUSec $unit | grep -q infinity"
    until_true "$unit has reported to the watchdog" sh -c "[ \"\$(systemctl show -P WatchdogTimestampMonotonic $unit)\" -gt 0 ]"
    check "$unit has reported its state: $(property "$unit" StatusText)" sh -c "[ -n \"\$(systemctl show -P StatusText $unit)\" ]"
    check "systemd-analyze verify accepts $unit" sh -c "systemd-analyze verify --man=no /usr/lib/systemd/system/${unit%edge}.service 2>&1 | (! grep .)"
done

echo "== users and capabilities"
run=$(property forebay@edge MainPID)
helper=$(property forebay-serve MainPID)
http=$(pgrep -P "$helper")
status() { sed -n "s/^$2:[[:space:]]*//p" "/proc/$1/status"; }
check "the pipeline belongs to forebay-run" [ "$(stat -c %U "/proc/$run")" = forebay-run ]
check "the root helper belongs to root" [ "$(stat -c %U "/proc/$helper")" = root ]
check "the HTTP process belongs to forebay" [ "$(ps -o user= -p "$http")" = forebay ]
# CAP_NET_ADMIN 12, CAP_NET_RAW 13, CAP_BPF 39.
check "the pipeline has three capabilities" [ "$(status "$run" CapEff)" = 0000008000003000 ]
check "the HTTP process has no capability" [ "$(status "$http" CapEff)" = 0000000000000000 ]
echo "        root helper: CapEff $(status "$helper" CapEff)"

echo "== each type of port, with the rights of the unit"
modprobe veth
for it in packet xdp; do
    ip link add ${it}0 type veth peer name ${it}1
    ip link set ${it}0 up
    ip link set ${it}1 up
done
cp ports.yaml /etc/forebay/ports.yaml
systemctl start forebay@ports || fail "forebay@ports starts"
until_true "the server lists ports" is_listed ports
check "forebay list running shows both" sh -c "forebay list running | grep -q edge && forebay list running | grep -q ports"
# ARP requests enter through `packet` and leave through `xdp`.
ip addr add 198.51.100.2/24 dev packet1
ping -c 5 -i 0.5 -W 1 198.51.100.7 >/dev/null 2>&1 || true
has_forwarded() { forebay show ports --instance ports --json | python3 -c '
import json, sys
found = {port["name"]: port for port in json.load(sys.stdin)}
sys.exit(not (found["packet"]["received"] > 0 and found["xdp"]["sent"] > 0))'; }
until_true "packets are forwarded from af_packet to af_xdp" has_forwarded
check "the tap exists" ip link show tap0
systemctl stop forebay@ports
check "forebay@ports ends without an error" has_property forebay@ports Result success

echo "== a port in another namespace and a file in another folder, with the further rights of docs/install.md"
ip netns add far
ip link set packet1 netns far
ip -n far link set packet1 up
mkdir /srv/captures
chown forebay-run /srv/captures
cat >/etc/forebay/far.yaml <<'YAML'
ports:
  far: { af_packet: { interface: packet1, namespace: far } }
  copy: { pcap: { write: /srv/captures/far.pcap } }
modules: { seen: { counter: } }
pipeline: [far -> seen -> copy]
YAML
systemctl start forebay@far && fail "without further rights, forebay@far does not start" || true
systemctl stop forebay@far
mkdir -p /etc/systemd/system/forebay@far.service.d
cp rights.conf /etc/systemd/system/forebay@far.service.d/override.conf
systemctl daemon-reload
check "with them, forebay@far starts" systemctl start forebay@far
systemctl stop forebay@far
check "it has written the file" [ -s /srv/captures/far.pcap ]
rm -r /etc/systemd/system/forebay@far.service.d /srv/captures
systemctl daemon-reload
ip netns del far

echo "== reload"
before=$(forebay show config --instance edge | cksum)
sed -i 's/rate: 300kpps/rate: 200kpps/' /etc/forebay/edge.yaml
check "systemctl reload forebay@edge" systemctl reload forebay@edge
until_true "the new configuration is in force" sh -c "forebay show config --instance edge | grep -q 200kpps"
[ "$before" != "$(forebay show config --instance edge | cksum)" ] || fail "the configuration has not changed"
check "the process is the same" has_property forebay@edge MainPID "$run"
echo '# changed' >>/etc/forebay/serve.yaml
check "systemctl reload forebay-serve" systemctl reload forebay-serve
until_true "the server answers after the reload" curl -sf "$url/readyz"

echo "== crash and hang"
# Not SIGSEGV: the first one only removes the handler of stack overflows.
kill -ABRT "$run"
until_true "a crashed pipeline starts again" has_changed forebay@edge MainPID "$run"
until_true "the server lists it again" is_listed edge
kill -KILL "$http"
until_true "a killed server starts again" has_changed forebay-serve MainPID "$helper"
until_true "the server answers" curl -sf "$url/readyz"
run=$(property forebay@edge MainPID)
kill -STOP "$run"
until_true "a pipeline that hangs is started again" has_changed forebay@edge MainPID "$run"
check "the watchdog ended it" sh -c "journalctl -u forebay@edge | grep -q -i 'watchdog timeout'"
until_true "the server lists it again" is_listed edge

echo "== upgrade"
has_history() { [ -n "$(first)" ]; }
first() { curl -s "$url/api/v1/instances/edge/history?most=1" | python3 -c '
import json, sys
at = json.load(sys.stdin).get("at") or [""]
print(at[0])'; }
until_true "the store has a history" has_history
old=$(first)
run=$(property forebay@edge MainPID)
helper=$(property forebay-serve MainPID)
(cd /root/second && sh -ex /share/files/upgrade) || fail "the commands succeed"
check "the package is the new one" sh -c "dpkg-query -W -f '\${Version}' forebay | grep -q upgrade"
until_true "the server runs the new program" has_changed forebay-serve MainPID "$helper"
until_true "the server answers" curl -sf "$url/readyz"
check "the pipeline keeps running" has_property forebay@edge MainPID "$run"
check "the history is kept" [ "$(first)" = "$old" ]
check "the configuration is kept" grep -q '# changed' /etc/forebay/serve.yaml
check "the pipeline's configuration is kept" grep -q 200kpps /etc/forebay/edge.yaml
until_true "the server lists edge" is_listed edge
systemctl restart forebay@edge || fail "forebay@edge starts with the new program"
until_true "the server lists edge" is_listed edge

echo "== removal"
(cd /root && sh -ex /share/files/removal) || fail "the commands succeed"
check "no process remains" sh -c "! pgrep -x forebay"
check "no folder of sockets remains" [ ! -e /run/forebay ]
files | comm -13 /root/before - | grep -v -E '^/(etc/(passwd|group|shadow|gshadow|subuid|subgid)-?|etc/.pwd.lock)$' >/root/remain || true
echo "        remaining files:"
sed 's/^/        /' /root/remain
# Configuration, store, states and logs; which units are enabled is configuration, too.
check "only configuration, store, states and logs remain" sh -c "! grep -v -E \
    '^/etc/forebay(/|\$)|^/var/lib/forebay(-run)?(/|\$)|^/var/log/forebay-run(/|\$)|^/etc/systemd/system/multi-user.target.wants/forebay' /root/remain"
check "the store remains" [ -s /var/lib/forebay/serve.db ]
check "the pipeline remains" [ -s /etc/forebay/edge.yaml ]
# Rights that the administrator gave to a unit end, too.
mkdir -p /etc/systemd/system/forebay@far.service.d
cp /share/files/rights.conf /etc/systemd/system/forebay@far.service.d/override.conf
apt-get purge -y forebay
files | comm -13 /root/before - | grep -v -E '^/(etc/(passwd|group|shadow|gshadow|subuid|subgid)-?|etc/.pwd.lock)$' >/root/remain || true
sed 's/^/        /' /root/remain
check "after purge, nothing remains" [ ! -s /root/remain ]
echo "all checks passed"
