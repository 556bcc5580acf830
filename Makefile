# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# Two commands: `make run` guards this machine, `make test` checks and tests it. Both install what is missing.
# The rest are for working on Plimsoll: `make check` is the short loop, `make test-all` the long one; `make` alone lists them.

PREFIX ?= /usr/local
DESTDIR ?=
# What `make run` hands to the daemon, e.g. ARGS='--dry-run'.
ARGS ?=
# Which benches `make bench` runs.
NAME ?= faults latency overshoot accuracy select

# Which build is installed or packed.
profile ?= release
program := target/$(profile)/plimsoll
library := target/$(profile)/deps/libtmalloc
bindir := $(PREFIX)/bin
libdir := $(PREFIX)/lib
# What is preloaded and not linked with.
preloaddir := $(libdir)
includedir := $(PREFIX)/include
unitdir := $(PREFIX)/lib/systemd/system
userunitdir := $(PREFIX)/lib/systemd/user
presetdir := $(PREFIX)/lib/systemd/system-preset
exampledir := $(PREFIX)/share/doc/plimsoll/examples
confdir := /etc/plimsoll
mandir := $(PREFIX)/share/man
bashdir := $(PREFIX)/share/bash-completion/completions
zshdir := $(PREFIX)/share/zsh/site-functions
fishdir := $(PREFIX)/share/fish/vendor_completions.d
sudo := $(if $(filter-out 0,$(shell id -u)),sudo)
version = $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
cfiles = $(shell find bpf lab crates testkit -name '*.[ch]')

SHELL := /bin/bash
# Where set-up found a compiler outside PATH; rustup's folder, which is in the PATH of login shells only; what set-up
# unpacked instead of installing, for the benches.
export PATH := $(CURDIR)/target/tools/rust:$(if $(wildcard $(HOME)/.cargo/bin/cargo),$(HOME)/.cargo/bin:)$(PATH):$(CURDIR)/target/tools/usr/bin:$(CURDIR)/target/tools/usr/sbin

.DEFAULT_GOAL := help
.PHONY: help run check test test-all build setup setup-deb setup-check setup-test fmt lint unit host lab bare tidy doc bench deb install uninstall clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

run: build ## guard this machine, in the foreground, until Ctrl-C
	@exec $(sudo) $(program) daemon $(ARGS)

check: setup-check ## formats, lints, and the tests that need no root: minutes; log in target/test.log
	@tools/test.sh check

test: setup-test ## what CI runs: check, this machine as root, and short lists in guests
	@tools/test.sh test

test-all: setup-test ## everything on every kernel, a real systemd, bare roots: more than an hour
	@tools/test.sh all

build: setup ## the release program and library
	cargo build --locked --release -p plimsoll -p plimsoll-tmalloc -p plimsoll-preload

setup:
	@tools/setup.sh build

setup-deb:
	@tools/setup.sh deb

setup-check:
	@tools/setup.sh check

setup-test:
	@tools/setup.sh test

fmt: ## format all Rust and C
	cargo fmt --all
	$(if $(wildcard fuzz/*/*.rs),rustfmt --edition 2024 $(wildcard fuzz/*/*.rs))
	$(if $(cfiles),clang-format -i $(cfiles))

lint: setup-test ## formats, clippy, shellcheck, C warnings, documentation
	@tools/test.sh lint

unit: ## the tests of check: no root
	@tools/test.sh unit

host: setup-test ## integration tests on this machine, as root
	@tools/test.sh host

lab: setup-test ## the short lists inside stock Debian kernels, under qemu
	@tools/test.sh lab

bare: ## build and checks in bare roots of Debian 12, 13 and Ubuntu 24.04, as root
	@tools/test.sh bare

tidy: ## the rules of the tree: sizes, licences, links, directions
	@cargo test --quiet --locked -p xtask

doc: ## the developers' documentation, in target/doc
	RUSTDOCFLAGS=-Dwarnings cargo doc --locked --workspace --no-deps --document-private-items

bench: setup-test build ## NAME='faults latency ...': measure on this machine, as root
	@set -e; for name in $(NAME); do $(sudo) env "PATH=$$PATH" $(program) bench $$name; done

deb: setup-deb build ## Debian packages, in target/debian
	@packaging/deb.sh

install: ## into PREFIX (/usr/local), after `make build`
	@test -x $(program) || { echo "install: $(program) is not built: run 'make build' first" >&2; exit 1; }
	install -D -m 755 $(program) $(DESTDIR)$(bindir)/plimsoll
	rm -rf target/generated && mkdir -p target/generated
	$(program) man target/generated
	install -D -m 644 -t $(DESTDIR)$(mandir)/man1 target/generated/*.1
	$(program) completions bash >target/generated/bash
	$(program) completions zsh >target/generated/zsh
	$(program) completions fish >target/generated/fish
	install -D -m 644 target/generated/bash $(DESTDIR)$(bashdir)/plimsoll
	install -D -m 644 target/generated/zsh $(DESTDIR)$(zshdir)/_plimsoll
	install -D -m 644 target/generated/fish $(DESTDIR)$(fishdir)/plimsoll.fish
	mkdir -p $(DESTDIR)$(unitdir) $(DESTDIR)$(userunitdir)
	set -e; for unit in plimsoll plimsoll-notify; do \
		sed 's|/usr/bin/plimsoll|$(bindir)/plimsoll|g' packaging/$$unit.service >$(DESTDIR)$(unitdir)/$$unit.service; \
		chmod 644 $(DESTDIR)$(unitdir)/$$unit.service; \
	done
	sed 's|/usr/bin/plimsoll|$(bindir)/plimsoll|g' packaging/user/plimsoll-notify.service >$(DESTDIR)$(userunitdir)/plimsoll-notify.service
	chmod 644 $(DESTDIR)$(userunitdir)/plimsoll-notify.service
	install -D -m 644 packaging/plimsoll.preset $(DESTDIR)$(presetdir)/90-plimsoll.preset
	install -D -m 644 -t $(DESTDIR)$(exampledir) packaging/prometheus/plimsoll.rules.yml packaging/prometheus/loopback.conf
	install -D -m 644 -t $(DESTDIR)$(exampledir) packaging/pressure/session.conf packaging/pressure/services.conf
	mkdir -p $(DESTDIR)$(confdir)/conf.d
	test -e $(DESTDIR)$(confdir)/plimsoll.toml || install -m 644 packaging/plimsoll.toml $(DESTDIR)$(confdir)/plimsoll.toml
	mkdir -p $(DESTDIR)$(libdir)/pkgconfig
	crates/tmalloc/link.sh $(library).a $(DESTDIR)$(libdir)/libtmalloc.so.$(version)
	ln -sf libtmalloc.so.$(version) $(DESTDIR)$(libdir)/libtmalloc.so.0
	ln -sf libtmalloc.so.0 $(DESTDIR)$(libdir)/libtmalloc.so
	install -D -m 644 $(library).a $(DESTDIR)$(libdir)/libtmalloc.a
	install -d $(DESTDIR)$(preloaddir)
	crates/tmalloc/link.sh $(library)_preload.a $(DESTDIR)$(preloaddir)/libtmalloc-preload.so
	install -D -m 644 crates/tmalloc/include/tmalloc.h $(DESTDIR)$(includedir)/tmalloc.h
	sed 's|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(libdir)|; s|@VERSION@|$(version)|' crates/tmalloc/tmalloc.pc.in >$(DESTDIR)$(libdir)/pkgconfig/tmalloc.pc
	chmod 644 $(DESTDIR)$(libdir)/pkgconfig/tmalloc.pc
	install -D -m 644 crates/tmalloc/man/tmalloc.3 $(DESTDIR)$(mandir)/man3/tmalloc.3
	@echo "installed. To guard from every boot on: systemctl daemon-reload && systemctl enable --now plimsoll plimsoll-notify"

uninstall: ## stop guarding and remove what install put there; settings and history stay
	@if [ -z "$(DESTDIR)" ] && [ -x $(bindir)/plimsoll ]; then \
		if [ -d /run/systemd/system ] && systemctl cat plimsoll.service >/dev/null 2>&1; then \
			systemctl disable --now plimsoll-notify.service plimsoll.service; \
		fi; \
		$(bindir)/plimsoll daemon --stop-guarding; \
	fi
	rm -f $(DESTDIR)$(bindir)/plimsoll $(DESTDIR)$(unitdir)/plimsoll.service $(DESTDIR)$(unitdir)/plimsoll-notify.service $(DESTDIR)$(userunitdir)/plimsoll-notify.service $(DESTDIR)$(presetdir)/90-plimsoll.preset
	rm -rf $(DESTDIR)$(PREFIX)/share/doc/plimsoll
	rm -f $(DESTDIR)$(mandir)/man1/plimsoll.1 $(DESTDIR)$(mandir)/man1/plimsoll-*.1
	rm -f $(DESTDIR)$(libdir)/libtmalloc.so $(DESTDIR)$(libdir)/libtmalloc.so.0 $(DESTDIR)$(libdir)/libtmalloc.so.$(version)
	rm -f $(DESTDIR)$(preloaddir)/libtmalloc-preload.so $(DESTDIR)$(libdir)/libtmalloc.a $(DESTDIR)$(libdir)/pkgconfig/tmalloc.pc $(DESTDIR)$(includedir)/tmalloc.h
	rm -f $(DESTDIR)$(mandir)/man3/tmalloc.3
	rm -f $(DESTDIR)$(bashdir)/plimsoll $(DESTDIR)$(zshdir)/_plimsoll $(DESTDIR)$(fishdir)/plimsoll.fish

clean: ## remove everything built (target/)
	cargo clean
