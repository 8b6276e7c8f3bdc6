# The targets that people and .ci/run use. "make test" needs Go alone; "make integration" also needs
# node 20 or later with npm, and reaches npm's registry once.

GO ?= go
# How long each fuzz target runs: a number of inputs, since a time that is over while an input is being looked at fails
# the target now and then ("context deadline exceeded").
FUZZTIME ?= 5000x
# How long the soak goes on.
SOAK ?= 10m
# Arguments of the benchmark, for example BENCH="-rounds 5".
BENCH ?=

# What bench-compare compares with, and how.
BASE ?= HEAD
BENCH_MATCH ?= Parse|Rewrite|AppendResult|Build|Decide|Rights|Acquire|Views/(later|find)
BENCH_PACKAGES ?= ./internal/wire ./naming ./authz ./gateway
BENCH_COUNT ?= 6

.PHONY: all build test race lint fuzz-short bench bench-compare integration soak conformance

all: build lint test

build:
	$(GO) build -o bin/headgate ./cmd/headgate

test:
	$(GO) test -timeout 15m ./...

race:
	$(GO) test -race -timeout 15m ./...

lint:
	@unformatted=$$(gofmt -l .); \
	if [ -n "$$unformatted" ]; then echo "gofmt would change:" $$unformatted; exit 1; fi
	$(GO) vet ./...
	$(GO) vet -tags integration ./integration/...
	$(GO) tool staticcheck ./...
	$(GO) tool staticcheck -tags integration ./integration/...

# Runs every fuzz target of the module for a short time, one after another.
fuzz-short:
	@set -eu; n=0; \
	for file in $$(grep -rl --include='*_test.go' '^func Fuzz' . | sort); do \
		for target in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$$file"); do \
			echo "== $$(dirname "$$file") $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 50x "$$(dirname "$$file")"; \
			n=$$((n + 1)); \
		done; \
	done; \
	echo "$$n fuzz targets, $(FUZZTIME) each"; [ "$$n" -gt 0 ]

bench: build
	$(GO) run ./integration/bench -headgate bin/headgate $(BENCH)

# Runs the benchmarks of the code that every request passes, in the checkout and in the revision BASE, and compares
# their times and allocations.
bench-compare:
	@set -eu; mkdir -p bin; tree=$$(mktemp -d); \
	trap 'git worktree remove --force "$$tree/base"; rmdir "$$tree"' EXIT; \
	git worktree add --quiet --detach "$$tree/base" $(BASE); \
	run() { $(GO) test -run '^$$' -bench '$(BENCH_MATCH)' -benchmem -benchtime 200ms -count $(BENCH_COUNT) $(BENCH_PACKAGES); }; \
	(cd "$$tree/base" && run) >bin/bench-before.txt; run >bin/bench-after.txt; \
	$(GO) tool benchstat bin/bench-before.txt bin/bench-after.txt

integration:
	cd integration/npm && npm ci --no-audit --no-fund
	$(GO) test -tags integration -count=1 -timeout 8m -skip '^TestConformance' ./integration/

# Runs the official conformance suite of MCP against Headgate and against the server behind it. It brings
# a node of its own.
conformance:
	cd integration/npm && npm ci --no-audit --no-fund
	cd integration/conformance && npm ci --no-audit --no-fund
	$(GO) test -tags integration -count=1 -timeout 8m -v -run '^TestConformance' ./integration/

soak:
	$(GO) test ./integration/soak -run 'TestSoak$$' -count 1 -timeout 0 -v -soak $(SOAK)
