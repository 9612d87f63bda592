# Zuse: everything a developer, a packager or the CI machine needs to type.
#
#   make demo      a tour that makes a pool, mounts it, fills it, breaks it and mends it
#   make test      everything that can fail: unit tests, property tests, command-line suites
#   make soak      what takes too long for that: stressors on a mount, many seeds (hours; root)
#   make lint      formatting and clippy
#   make bench     side by side with other file systems on the same disk (bench/README.md)
#   make install   the release binary into PREFIX (default /usr/local)
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

.PHONY: help build checked demo test soak lint fmt bench install setup clean

help:
	@sed -n 's/^#   //p' Makefile

setup:
	@scripts/setup

build: setup
	$(CARGO) build --release --locked

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
	install -D -m 0755 $(BIN) $(DESTDIR)$(PREFIX)/bin/zuse

clean:
	$(CARGO) clean
