# erofast: `make demo` shows what it is for, `make test` proves that it works, `make help` lists the
# rest. Both begin with `make setup`, which as root installs missing requirements, and otherwise
# names them; everything is built with --locked.

CARGO ?= cargo
# Where cargo puts the programs.
RELEASE = $(or $(CARGO_TARGET_DIR),target)/release

.PHONY: demo test check ci build setup lint doc models rest bench fuzz fuzz-changed dist deb static initramfs install uninstall help

demo: setup ## shows what erofast is for
	scripts/demo

# Quick checks come first; the last line is "N passed, N failed, N skipped".
test: setup lint doc ## formatting, clippy, documentation, all tests
	scripts/test

check: ## between edits: formatting, clippy, quick tests of the crates that differ from main
	scripts/check

ci: setup rest fuzz-changed models ## what continuous integration runs before `make test`

# Runs each target for four seconds if fuzz/ or its oracles differ from main. Clippy always compiles
# the targets, and tests always replay their findings.
fuzz-changed: ## fuzz targets, where they or what they call differ from main
	@changed=$$(scripts/changed) && if echo "$$changed" | grep -qE '^(fuzz|crates/erofs-oracles)/'; then fuzz/run 4; \
	else echo "left out: fuzzing, since neither fuzz/ nor crates/erofs-oracles differs from main"; fi

setup: ## installs what is missing, or names it
	scripts/setup

models: ## interleavings of threads, with loom
	scripts/check-models

rest: ## checks that need a tool of their own
	scripts/check-rest

build: ## the programs and the C library, optimised
	$(CARGO) build --locked --release -p erofast -p erofast-lab -p erofast-fetch -p erofast-snapshotter -p liberofast
	scripts/licence-texts > $(RELEASE)/third-party-licences

lint: ## formatting and clippy
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets --features erofast-fuzz/targets -- -D warnings

doc: ## the documentation of the crates
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --workspace --no-deps

# Packages and programs for others, in target/dist; see docs/building.md. `make dist` builds all of
# them and starts each; releases are made from it. Parts: deb, static (for the CPUs in STATIC),
# initramfs (a program that only mounts, for the CPU in INITRAMFS; recipes are in
# contrib/initramfs).
dist: ## what a release is made of: packages and programs, each started
	scripts/setup-dist
	scripts/dist

deb static initramfs: ## parts of it
	scripts/dist $@

# Installs without a package: programs, C library, mount helpers, man pages, completions, pages and
# units below $(PREFIX), with DESTDIR in front. `make uninstall` with the same variables removes the
# same files.
PREFIX ?= /usr/local
DESTDIR ?=
# If root has no Rust, the existing result of `make build` is installed.
install: ## below PREFIX (/usr/local)
	@if command -v $(CARGO) >/dev/null; then $(MAKE) build; \
	elif test -s $(RELEASE)/third-party-licences; then echo "install: no $(CARGO) in PATH: installing what make build built"; \
	else echo "install: no $(CARGO) in PATH, and nothing is built: run make build as yourself first" >&2; exit 1; fi
	LAB=$(RELEASE)/erofast-lab FETCH=$(RELEASE)/erofast-fetch SNAPSHOTTER=$(RELEASE)/erofast-snapshotter LIBRARY=$(RELEASE) scripts/install-files $(RELEASE)/erofast "$(DESTDIR)" "$(PREFIX)"

uninstall: ## removes what install put there
	scripts/install-files --remove "$(DESTDIR)" "$(PREFIX)"

bench: ## benchmarks of the crates
	$(CARGO) bench --locked --workspace

fuzz: ## ten minutes for each target
	fuzz/run 600

help: ## this list
	@sed -n 's/^\([a-z -]*\):.*## /\1\t/p' Makefile | expand -t 24
