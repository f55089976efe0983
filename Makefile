# erofast: `make demo` shows what it is for, `make test` proves that it works.
# Both begin with `make setup`, which installs what is missing as root and names it otherwise;
# everything is built with --locked.

CARGO ?= cargo

.PHONY: demo test check ci build setup lint doc models rest bench fuzz fuzz-changed deb static initramfs install uninstall

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
	@if scripts/changed | grep -qE '^(fuzz|crates/erofs-oracles)/'; then fuzz/run 4; \
	else echo "left out: fuzzing, since neither fuzz/ nor crates/erofs-oracles differs from main"; fi

setup:
	scripts/setup

models:
	scripts/check-models

rest:
	scripts/check-rest

build:
	$(CARGO) build --locked --release -p erofast -p liberofast

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets --features erofast-fuzz/targets -- -D warnings

doc:
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --workspace --no-deps

# Packages and programs for others; see docs/install.md. They land in target/dist.
deb:
	mkdir -p target/dist
	scripts/package-deb "$$(scripts/build-release)" target/dist

static:
	mkdir -p target/dist
	rm -f target/dist/SHA256SUMS
	for cpu in $(STATIC); do \
	    program=$$(scripts/build-release $$cpu-unknown-linux-musl) && \
	    install -s --strip-program=$$cpu-linux-gnu-strip "$$program" target/dist/erofast-$$cpu || exit 1; \
	done
	for cpu in $(STATIC); do \
	    scripts/package-tarball target/dist/erofast-$$cpu $$cpu target/dist || exit 1; \
	done
	cd target/dist && sha256sum $(foreach cpu,$(STATIC),erofast-$(cpu) erofast-*-$(cpu)-linux.*) >SHA256SUMS

# A static program that only mounts, for an initramfs; recipes are in contrib/initramfs.
initramfs:
	mkdir -p target/dist
	install "$$(scripts/build-release --small $(INITRAMFS)-unknown-linux-musl)" target/dist/erofast-initramfs

INITRAMFS ?= x86_64

STATIC ?= x86_64 aarch64

# Without a package: program, C library, mount helpers, man pages, completions, pages and units below
# $(PREFIX); DESTDIR goes in front. `make uninstall` removes the same files.
PREFIX ?= /usr/local
DESTDIR ?=
install: build
	LIBRARY=target/release scripts/install-files target/release/erofast "$(DESTDIR)" "$(PREFIX)"

uninstall:
	scripts/install-files --remove "$(DESTDIR)" "$(PREFIX)"

bench:
	$(CARGO) bench --locked --workspace

# Ten minutes for each target.
fuzz:
	fuzz/run 600
