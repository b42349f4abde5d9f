# The commands of a developer. Each target installs missing tools (scripts/install-*) or prints what to install.

SHELL := /bin/bash
CARGO_HOME ?= $(HOME)/.cargo
export PATH := $(CARGO_HOME)/bin:$(PATH)
export FUZZ_SECONDS ?= 60

.DEFAULT_GOAL := help
.PHONY: help install uninstall deb container release units demo demo-netns test gate gate-update bench measure-sums measure-serve bench-placement bench-peers bench-interfaces sim fuzz hostile miri portable soak soak-sessions test-busy test-vm test-vm-install lint web page-test schema rust

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | column -t -s '|'

PREFIX ?= /usr/local
# Only files of the system need root. `env`, because sudo removes variables.
install_as := $(if $(filter 0,$(shell id -u))$(DESTDIR)$(filter $(HOME)/%,$(PREFIX)/),,sudo) env PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)'
install: rust ## install program, manual pages, completions, units, documentation in PREFIX (/usr/local); DESTDIR is put before it (only the script uses sudo, if needed)
	cargo build --release -p forebay-cli
	@scripts/install-debian python3:python3
	@scripts/third-party-licences
	@$(install_as) scripts/install target/release/forebay

uninstall: ## remove the files that `make install` with the same PREFIX has installed, but no configuration (the script uses sudo, if needed)
	@$(install_as) scripts/install --remove target/release/forebay

deb: rust ## make a Debian package in target/deb
	cargo build --release -p forebay-cli
	scripts/package-deb target/release/forebay

container: rust ## make a container image with buildah, and run it (as root; the scripts use sudo, if not root)
	cargo build --release -p forebay-cli
	@scripts/install-debian python3:python3
	scripts/third-party-licences
	$(if $(filter 0,$(shell id -u)),,sudo) deploy/container/build target/release/forebay
	$(if $(filter 0,$(shell id -u)),,sudo) deploy/container/test

release: rust ## check version, tag and changelog; make tarball, Debian package, notes and checksums in target/release-VERSION
	scripts/release

units: rust ## check the systemd units and their rights with systemd-analyze
	cargo build -p forebay-cli
	scripts/check-units target/debug/forebay

demo: rust ## run a gateway for 8 tenants, with a page that shows it; its controller keeps a delay objective of 1 ms with the fewest cycles
	cargo build --release -p forebay-cli
	@scripts/demo

demo-netns: rust ## run a router, gateway, VPN, UPF, balancer and VXLAN between network namespaces, with Linux as the peer (only the script uses sudo, if not root)
	@scripts/install-debian python3:python3
	cargo build --release -p forebay-cli
	@$(if $(filter 0,$(shell id -u)),,sudo) scripts/demo-netns

# Most tests of the command wait for a process: with one test per core, the cores would be idle for more than half of
# the time. So each binary runs one test more than there are cores. Two binaries run at a time (scripts/run-tests).
test: export RUST_TEST_THREADS ?= $(shell echo $$(($$(nproc) + 1)))
test: rust ## run every test: unit, property, differential, documentation, replayed fuzz corpora
	@scripts/install-debian python3:python3
	@scripts/install-debian --optional 'the tests that read written captures with tshark' tshark:tshark
	@scripts/install-debian --optional 'the tests that count instructions' valgrind:valgrind
	@scripts/install-debian --optional 'the tests that ping and trace routes' ping:iputils-ping traceroute:traceroute
	@scripts/install-debian --optional 'the scenes between network namespaces' ip:iproute2 iperf3:iperf3 dnsmasq:dnsmasq-base busybox:busybox
	@scripts/install-debian --optional 'the tests of the API' curl:curl jq:jq openssl:openssl promtool:prometheus
	@scripts/install-debian --optional 'the check of the systemd units' systemd-analyze:systemd
	@scripts/install-python --optional 'the test of the API with Schemathesis' schemathesis
	@scripts/install-debian --optional 'the tests of the page' node:nodejs npm:npm chromium:chromium
	@scripts/run-tests

gate: rust ## compare instructions per packet with baselines/instructions.json; name increases and their causes
	@scripts/install-debian valgrind:valgrind
	cargo build --release -p forebay-cli
	target/release/forebay gate --baseline baselines/instructions.json

gate-update: rust ## write a new baseline for the gate, after a change that is meant to cost more
	@scripts/install-debian valgrind:valgrind
	cargo build --release -p forebay-cli
	target/release/forebay gate --baseline baselines/instructions.json --update usecases functions

bench: rust ## measure ticks per packet, module by module; writes target/bench.json
	cargo bench -p forebay-cli --bench engine
	cargo bench -p forebay-functions --bench sessions --bench aes -- --record
	cargo bench -p forebay-functions --bench dpi -- --record 1000

measure-sums: export RUNS ?= 20
measure-sums: rust ## check the ticks of parts that `measure` reports, by RUNS (20) runs of ten pipelines and of two chains; lists all runs
	@scripts/install-debian python3:python3
	cargo build --release -p forebay-cli
	scripts/measure-sums --runs $$RUNS

measure-serve: rust ## measure the cost of `forebay serve` for a pipeline of 323 modules: PAIRS (20) pairs of runs with and without it
	@scripts/install-debian python3:python3
	cargo build --release -p forebay-cli
	scripts/measure-serve --pairs $${PAIRS:-20}

bench-placement: rust ## measure the time of the exact search for placements, and how near a stopped search is to the optimum
	cargo bench -p forebay-models --bench placement

bench-peers: rust ## compare the engine with DPDK's testpmd in one run; writes target/bench-peers.json
	@scripts/install-debian python3:python3 dpdk-testpmd:dpdk-dev
	scripts/bench-peers

bench-interfaces: rust ## compare ports to interfaces with testpmd on the same veth pairs (as root); writes target/bench-interfaces.json
	cargo build --release -p forebay-cli
	scripts/bench-interfaces

sim: rust ## compare the simulator with the packet-exact engine on all use cases, and measure its speed relative to real time
	cargo test --release -p forebay-sim -- --ignored
	cargo bench -p forebay-sim --bench speed

fuzz: rust ## run every fuzz target for FUZZ_SECONDS (60)
	@scripts/install-cargo-fuzz
	scripts/fuzz

hostile: rust ## send 10 million mutated frames through every function and through whole gateways, and 10 000 wrong requests to the API; send 10 000 requests per second for a minute; kill the server 100 times, and 500 times while it writes
	@scripts/install-python schemathesis
	FOREBAY_HOSTILE_FRAMES=10000000 cargo test --release -p forebay-cli --test hostile -- --nocapture
	FOREBAY_API_EXAMPLES=300 cargo test --release -p forebay-cli --test schemathesis -- --nocapture
	FOREBAY_SERVER_KILLS=100 FOREBAY_STORE_KILLS=500 FOREBAY_FLOOD_SECONDS=60 cargo test --release -p forebay-cli --test serve -- --nocapture kill flood

soak: rust ## run 1 000 reloads and 1 000 moves of modules under load, then ten minutes of changes with workers added and removed (`make test`: shorter)
	FOREBAY_RELOADS=1000 cargo test --release -p forebay-cli --test reloads -- --nocapture
	FOREBAY_MOVES=1000 cargo test --release -p forebay-instance --test moves -- --nocapture
	FOREBAY_SOAK_SECONDS=600 cargo test --release -p forebay-cli --test soak -- --nocapture

soak-sessions: rust ## run a million sessions, 50 000 new ones per second, for a minute in real time (`make test`: simulated time)
	FOREBAY_CROWD_SECONDS=60 cargo test --release -p forebay-cli --test crowd -- --nocapture

test-busy: rust ## run tests that wait or start processes FOREBAY_BUSY_ROUNDS (20) times next to 4 busy processes; SUITE=1: also make test once
	scripts/test-busy $(if $(SUITE),--suite)

# QEMU 7 reads memory that AVX2's masked loads exclude, so a program with AVX2 crashes. Therefore the guest's program is
# built without AVX2.
test-vm: rust ## test ESP and GTP-U with the kernel's implementations, in an emulated Debian whose kernel has them (five minutes; the script uses sudo, if not root)
	RUSTFLAGS='-C target-cpu=x86-64-v2' cargo build --release -p forebay-cli --target-dir target/without-avx2
	@$(if $(filter 0,$(shell id -u)),,sudo) scripts/test-vm

test-vm-install: rust ## install, upgrade and remove the Debian package in an emulated Debian (five minutes; the script uses sudo, if not root)
	RUSTFLAGS='-C target-cpu=x86-64-v2' cargo build --release -p forebay-cli --target-dir target/without-avx2
	@scripts/install-debian python3:python3
	scripts/third-party-licences
	@$(if $(filter 0,$(shell id -u)),,sudo) scripts/test-vm-install

miri: rust ## run the unsafe code of memory, packets, pools and rings in the interpreter Miri (ten minutes)
	@scripts/install-miri
	MIRIFLAGS=-Zmiri-disable-isolation cargo +nightly miri test -p forebay-memory -p forebay-packet
	MIRIFLAGS=-Zmiri-disable-isolation cargo +nightly miri test -p forebay-graph --test ring

# Vectorised kernels that choose their instructions at run time are tested at every level by `make test`. This target
# tests kernels whose instructions are chosen when they are compiled. It does not test `packet`, because the scalar
# version of `packet` is tested in every build, and compiling its dependencies again takes a minute. Miri runs a part of
# the tests of unsafe code.
portable: export MIRI_SHORT := zeroed:: batch::tests::a_full pool::tests::a_packet_outlives pool::tests::last_in
portable: rust ## test without AVX2, compile for aarch64, and run a few tests in Miri (two minutes)
	@scripts/install-debian python3:python3
	@scripts/install-miri
	RUSTFLAGS='-C target-cpu=x86-64' cargo test --target-dir target/portable --lib -p forebay-simd
	@scripts/check-aarch64
	MIRIFLAGS=-Zmiri-disable-isolation cargo +nightly miri test --lib -p forebay-memory -p forebay-packet -- $$MIRI_SHORT

lint: rust ## check formatting, clippy with warnings as errors, licences and sources of dependencies
	@scripts/install-cargo-deny
	rustfmt --check --edition 2024 $$(git ls-files "*.rs")
	cargo clippy --workspace --all-targets -- -D warnings
	cargo deny check licenses bans sources

# The files of the page are checked in, so that a build of the program needs no Node.
web: ## check and build the page, from web/ to web/dist
	@scripts/install-debian node:nodejs npm:npm
	cd web && npm ci && npm run check && npm run build

page-test: rust ## test the page in Chromium with a server and pipelines of its own (two minutes)
	@scripts/install-debian node:nodejs npm:npm chromium:chromium
	cargo build -p forebay-cli
	scripts/test-page $(SCENES)

schema: rust ## write the JSON Schemas of configurations, settings and command output, and the OpenAPI document, to schema/
	@mkdir -p schema target
	cargo run -q -p forebay-cli -- schema > target/forebay.schema.json
	for of in topology chains place co-runs request response serve tokens; do cargo run -q -p forebay-cli -- schema $$of > target/$$of.schema.json || exit; done
	cargo run -q -p forebay-cli -- schema openapi > target/openapi.json
	mv target/{forebay,topology,chains,place,co-runs,request,response,serve,tokens}.schema.json target/openapi.json schema/

rust:
	@scripts/install-rust
