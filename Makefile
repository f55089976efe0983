# erofast: `make demo` shows what it is for, `make test` proves that it works.
# Both begin with `make setup`, which installs what is missing as root and names it otherwise;
# everything is built with --locked.

CARGO ?= cargo

.PHONY: demo test check ci build setup lint doc models rest bench fuzz fuzz-changed dist deb static initramfs install uninstall

demo: setup
	scripts/demo

# The order puts the quick verdicts first; the last line is "N passed, N failed, N skipped".
test: setup lint doc
	scripts/test

# Between edits: formatting, clippy, and the quick tests of the crates that differ from main.
check:
	scripts/check

# What continuous integration runs before `make test`: the models, checks with tools of their own,
# and the fuzz targets where they changed.
ci: setup rest fuzz-changed models

# Each target for four seconds where fuzz/ or its oracles differ from main. Clippy compiles the
# targets and the tests replay what they found, always.
fuzz-changed:
	@changed=$$(scripts/changed) && if echo "$$changed" | grep -qE '^(fuzz|crates/erofs-oracles)/'; then fuzz/run 4; \
	else echo "left out: fuzzing, since neither fuzz/ nor crates/erofs-oracles differs from main"; fi

setup:
	scripts/setup

models:
	scripts/check-models

rest:
	scripts/check-rest

build:
	$(CARGO) build --locked --release -p erofast -p erofast-lab -p erofast-fetch -p liberofast
	scripts/licence-texts > target/release/third-party-licences

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets --features erofast-fuzz/targets -- -D warnings

doc:
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --workspace --no-deps

# Packages and programs for others; see docs/building.md. They land in target/dist. `make dist` makes all
# of them and starts each, and is what a release is made of. Parts: deb, static (of the CPUs in STATIC),
# initramfs (a program that only mounts, of the CPU in INITRAMFS; recipes are in contrib/initramfs).
dist:
	scripts/setup-dist
	scripts/dist

deb static initramfs:
	scripts/dist $@

# Without a package: programs, C library, mount helpers, man pages, completions, pages and units below
# $(PREFIX); DESTDIR goes in front. `make uninstall` with the same variables removes the same files.
PREFIX ?= /usr/local
DESTDIR ?=
# Where root has no Rust, what `make build` built is installed as it is.
install:
	@if command -v $(CARGO) >/dev/null; then $(MAKE) build; \
	elif test -s target/release/third-party-licences; then echo "install: no $(CARGO) in PATH: installing what make build built"; \
	else echo "install: no $(CARGO) in PATH, and nothing is built: run make build as yourself first" >&2; exit 1; fi
	LAB=target/release/erofast-lab FETCH=target/release/erofast-fetch LIBRARY=target/release scripts/install-files target/release/erofast "$(DESTDIR)" "$(PREFIX)"

uninstall:
	scripts/install-files --remove "$(DESTDIR)" "$(PREFIX)"

bench:
	$(CARGO) bench --locked --workspace

# Ten minutes for each target.
fuzz:
	fuzz/run 600
