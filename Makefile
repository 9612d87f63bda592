# Zuse: everything a developer, a packager or the CI machine needs to type.
#
#   make demo      a tour: makes a pool, mounts it, fills it, snapshots, rolls back, exports, imports, compares
#   make test      all tests: unit tests, property tests, command-line suites
#   make soak      longer tests: stressors on a mount, many seeds (hours; root)
#   make lint      formatting and clippy
#   make bench     comparison with other file systems on the same disk (bench/README.md)
#   make install   the release binary into PREFIX (default /usr/local); install-links adds zfs, zpool, zdb, zstream
#
# Each target installs what is missing on a fresh Debian 12 (as root); elsewhere it says what to install.

PREFIX  ?= /usr/local
DESTDIR ?=
CARGO   ?= cargo
BIN     := target/release/zuse
# What tests and the tour run: optimised too, with assertions and overflow checks.
CHECKED := target/debug/zuse
WORK    ?= target/demo
# Debian 12 has two sets of Rust packages; scripts/setup prefers a toolchain that is already there.
SHELL   := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
export PATH := $(HOME)/.cargo/bin:$(PATH)

.PHONY: help build checked demo test soak lint fmt bench install install-links setup clean

help:
	@sed -n 's/^#   //p' Makefile

setup:
	@scripts/setup

# No path of whoever builds it stands in the program.
UNNAMED := --remap-path-prefix=$(CURDIR)=zuse --remap-path-prefix=$(or $(CARGO_HOME),$(HOME)/.cargo)=cargo

build: setup
	RUSTFLAGS="$(RUSTFLAGS) $(UNNAMED)" $(CARGO) build --release --locked

checked: setup
	$(CARGO) build --workspace --locked

demo: checked
	@mkdir -p $(WORK)
	$(CHECKED) demo $(WORK)

test: setup
	$(CARGO) test --workspace --locked
	@ZUSE=$(CURDIR)/$(CHECKED) scripts/run-suites

soak: build
	scripts/soak

lint: setup
	$(CARGO) fmt --all --check
	$(CARGO) fmt --manifest-path bench/driver/Cargo.toml --check
	@if $(CARGO) clippy --version >/dev/null 2>&1; then \
	    $(CARGO) clippy --workspace --all-targets --locked -- -D warnings; \
	else \
	    echo "lint: clippy is not installed (Debian: apt-get install rust-web-clippy; rustup: rustup component add clippy); only the formatting was checked"; \
	fi

fmt:
	$(CARGO) fmt --all

bench: build
	bench/run.sh

install: build
	install -D -m 0755 -s $(BIN) $(DESTDIR)$(PREFIX)/bin/zuse
	install -d $(DESTDIR)$(PREFIX)/sbin
	ln -sf ../bin/zuse $(DESTDIR)$(PREFIX)/sbin/mount.zuse
	ln -sf ../bin/zuse $(DESTDIR)$(PREFIX)/sbin/mount.fuse.zuse
	install -d $(DESTDIR)$(PREFIX)/lib/systemd/system $(DESTDIR)$(PREFIX)/lib/systemd/user
	sed 's#@BINDIR@#$(PREFIX)/bin#' dist/zuse-host.service >$(DESTDIR)$(PREFIX)/lib/systemd/user/zuse-host.service
	sed 's#default.target#multi-user.target#' $(DESTDIR)$(PREFIX)/lib/systemd/user/zuse-host.service \
	    >$(DESTDIR)$(PREFIX)/lib/systemd/system/zuse-host.service

# The names of OpenZFS's commands: they would shadow a real OpenZFS.
install-links:
	for name in zfs zpool zdb zstream; do ln -sf zuse $(DESTDIR)$(PREFIX)/bin/$$name; done

clean:
	$(CARGO) clean
