# erofast: `make demo` shows what it is for, `make test` proves that it works.
# Both install what they need first (scripts/setup), and build with --locked.

CARGO ?= cargo

.PHONY: demo test build setup lint doc bench fuzz

demo: setup
	scripts/demo

# The order puts the quick verdicts first and the test runner's summary last.
test: setup lint doc
	$(CARGO) build --locked --release -p erofast
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

bench:
	$(CARGO) bench --locked --workspace
