# erofast: `make demo` shows what it is for, `make test` proves that it works.
# Both install what they need first (scripts/setup), and build with --locked.

CARGO ?= cargo

.PHONY: demo test build setup lint doc bench fuzz deb static install

demo: setup
	scripts/demo

# The order puts the quick verdicts first and the test runner's summary last.
test: setup lint doc
	$(CARGO) build --locked --release -p erofast
	fuzz/run 4
	$(CARGO) test --locked --workspace --no-fail-fast

setup:
	scripts/setup

build:
	$(CARGO) build --locked --release -p erofast

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings

doc:
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --workspace --no-deps

# Packages and programs for others; see docs/install.md. They land in target/dist.
deb:
	mkdir -p target/dist
	scripts/package-deb "$$(scripts/build-release)" target/dist

static:
	mkdir -p target/dist
	for cpu in $(STATIC); do \
	    program=$$(scripts/build-release $$cpu-unknown-linux-musl) && \
	    install -s --strip-program=$$cpu-linux-gnu-strip "$$program" target/dist/erofast-$$cpu || exit 1; \
	done

STATIC ?= x86_64 aarch64

# Without a package: program, mount helper, man pages and completions below $(PREFIX).
PREFIX ?= /usr/local
DESTDIR ?=
install: build
	install -D target/release/erofast $(DESTDIR)$(PREFIX)/bin/erofast
	mkdir -p $(DESTDIR)/sbin
	ln -sf $(PREFIX)/bin/erofast $(DESTDIR)/sbin/mount.erofast
	ln -sf $(PREFIX)/bin/erofast $(DESTDIR)/sbin/mount.fuse.erofast

bench:
	$(CARGO) bench --locked --workspace

# Ten minutes for each target.
fuzz:
	fuzz/run 600
