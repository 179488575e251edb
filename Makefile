# `make` lists the targets. A fresh Debian machine needs only Go, git and make:
# everything but the race detector works without a C compiler (cgo is off, also for
# the tools; sqlc then uses its WebAssembly build of PostgreSQL's parser).

GO      ?= go
TOOLS   := $(CURDIR)/bin/tools
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)

GOLANGCI_LINT_VERSION := v2.15.0
SQLC_VERSION          := v1.31.1
OAPI_CODEGEN_VERSION  := v2.8.2
OPENAPI_TYPESCRIPT_VERSION := 7.13.0
VERSITYGW_VERSION     := v1.8.0

export CGO_ENABLED ?= 0

# The version comes from git through -ldflags; Go's own stamp would fail where git
# refuses to read a checkout of another user.
BUILD := $(GO) build -trimpath -buildvcs=false -ldflags "-s -w -X github.com/erpbackbone/backbone/configs.Version=$(VERSION)"

# What `make test-race` looks at: packages whose tests start no server, and that start goroutines or
# share state. configs, adapters/jq and most of the domain do neither; test/conformance breaks the stores on
# which adapters/memory runs the suite. The nightly run takes all packages: make test-race RACE_PACKAGES=./...
RACE_PACKAGES ?= ./application/... ./ports/... ./domain/jsondoc/... ./domain/shredding/... \
	./adapters/httpapi/... ./adapters/jsonschema/... ./adapters/memory/... ./adapters/opa/... ./adapters/webhook/...

# Drills are the tests whose name begins with TestDrill: they kill processes, measure pages
# or wait for real leases, so a busy machine may fail them. They never decide about a change.
DRILLS := ^TestDrill

# Drills that load whole fleets of servers or measure memory run without the race detector, whose cost
# would be most of what they see.
LOAD_DRILLS := ^TestDrill(BrokerCluster|BusinessYear|ErasuresKilled|FirstStart|Fleet|HostileClients|KilledUnderLoad|OutboxByLogical|Restore)

# Flags for every run of tests and for `make run`, such as
# make test TESTFLAGS='-run Append' or make run ARGS='--http 127.0.0.1:9000'.
TESTFLAGS ?=
ARGS      ?=

# Tests have small heaps. With Go's default of 100 the garbage collector takes a quarter of their
# processor time. Drills, which measure memory, keep the default.
TEST_GOGC ?= 400

.DEFAULT_GOAL := help
.PHONY: help run build test test-race simulate mutants drill fuzz lint fmt generate generate-check openapi-check bench clean tools ensure-postgres ensure-s3 ensure-compiler

help: ## List the targets
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ensure-postgres build ## Set up everything, take sample documents through the books, and keep serving
	@bin/backbone dev --sample $(ARGS)

build: ## Build bin/backbone
	$(BUILD) -o bin/backbone ./cmd/backbone

# Tests find or start a shared PostgreSQL by themselves (test/testkit); set
# BACKBONE_TEST_DSN to a superuser's DSN to use another one.
# The time-outs of tests and drills only end hangs. What waits longest begins first.
test: ensure-postgres ensure-s3 ## Run every test but the drills
	GOGC=$(TEST_GOGC) BACKBONE_REQUIRE_POSTGRES=1 BACKBONE_REQUIRE_S3=1 $(GO) test -shuffle=on -timeout 60m -skip '$(DRILLS)' $(TESTFLAGS) ./test/e2e ./...

test-race: ensure-compiler ## Run tests that start no server under the race detector
	GOGC=$(TEST_GOGC) CGO_ENABLED=1 $(GO) test -race -shuffle=on -timeout 60m -skip '$(DRILLS)' $(TESTFLAGS) $(RACE_PACKAGES)

# How many seeds `make simulate` runs, and from where: make simulate SEEDS=1000 START=random.
SEEDS ?= 10000
START ?= 1

simulate: ## Run nodes in simulated time under every fault, SEEDS times
	$(GO) test ./test/simulation -run '^TestSeeds$$' -count=1 -timeout 60m -seeds $(SEEDS) -start $(START) -processes "$$(nproc)" $(TESTFLAGS)

drill: ensure-postgres ensure-compiler ## Run the drills: killed processes, stalled servers, real leases, large volumes
	CGO_ENABLED=1 BACKBONE_REQUIRE_POSTGRES=1 $(GO) test -race -shuffle=on -timeout 60m -run '$(DRILLS)' -skip '$(LOAD_DRILLS)' $(TESTFLAGS) ./...
	BACKBONE_REQUIRE_POSTGRES=1 $(GO) test -shuffle=on -timeout 60m -run '$(LOAD_DRILLS)' $(TESTFLAGS) ./...

# How long `make fuzz` runs each target; a release has 30m. `make test` runs the seeds.
FUZZTIME ?= 30s

fuzz: ## Run each fuzz target for FUZZTIME; what it finds becomes a seed in testdata/fuzz
	@grep -r --include='*_test.go' '^func Fuzz' . | sed 's|/[^/]*_test.go:func \(Fuzz[A-Za-z]*\).*| \1|' | sort | while read -r package target; do \
		echo "$$package $$target"; \
		$(GO) test $$package -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $(TESTFLAGS) </dev/null || exit 1; \
	done

mutants: ## Break the product in one place at a time, and show which seed of the simulation finds each defect
	@$(GO) run ./test/simulation/mutants $(ARGS)

bench: ensure-postgres ensure-s3 ## Measure, and print the ratios of one run as a table
	BACKBONE_REQUIRE_POSTGRES=1 BACKBONE_REQUIRE_S3=1 $(GO) test -tags bench -run TestReport -v -count=1 -p 1 -timeout 60m $(TESTFLAGS) ./test/bench ./test/e2e

lint: tools ## Run the linters (go vet among them)
	$(TOOLS)/golangci-lint run

fmt: tools ## Format the code
	$(TOOLS)/golangci-lint fmt

# sqlc.yaml says what sqlc generates; everything else says so itself by go:generate.
generate: tools ## Generate code from SQL and from the OpenAPI document
	if [ -f sqlc.yaml ]; then $(TOOLS)/sqlc generate; fi
	PATH="$(TOOLS):$$PATH" $(GO) generate ./...

# Compares what is generated with what was there before, so it also works on
# changes that are not committed yet.
GENERATED := git ls-files --cached --others --exclude-standard -- '*.go' | sort | \
	while read -r file; do if [ -f "$$file" ] && grep -q '^// Code generated .* DO NOT EDIT\.$$' "$$file"; then git hash-object "$$file" | sed "s|$$| $$file|"; fi; done

generate-check: tools ## Fail when generated code is not current
	@before=$$($(GENERATED)) && $(MAKE) --no-print-directory generate && after=$$($(GENERATED)) && \
	if [ "$$before" != "$$after" ]; then \
		echo "Generated code was not current; commit what make generate has written:" >&2; \
		git status --short >&2; git --no-pager diff --stat >&2; exit 1; \
	fi

# What a caller of the API does first: both generators with their defaults, into a folder
# that is thrown away. The second needs npm, which nothing else here does.
openapi-check: tools ## Generate clients in Go and TypeScript from the OpenAPI document
	@out=$$(mktemp -d) && trap 'rm -rf "$$out"' EXIT && document=adapters/httpapi/openapi/assembled.yaml && \
	$(TOOLS)/oapi-codegen -generate types,client -package client -o "$$out/client.go" $$document && \
	if ! command -v npx >/dev/null; then echo "openapi-typescript was not run: there is no npm" >&2; exit 0; fi && \
	npx --yes openapi-typescript@$(OPENAPI_TYPESCRIPT_VERSION) $$document -o "$$out/client.ts" && \
	if grep -n '": Record<string, never>\|: Record<string, never>;' "$$out/client.ts"; then echo "An object lacks its members; declare additionalProperties" >&2; exit 1; fi

clean: ## Remove what was built; the data of make run and the tools stay
	rm -rf bin/backbone
	$(GO) clean -testcache

ensure-postgres:
	@.ci/ensure-postgres

ensure-compiler:
	@command -v $${CC:-gcc} >/dev/null || { echo "The race detector needs a C compiler; on Debian: apt-get install -y gcc libc6-dev" >&2; exit 1; }

# install-tool NAME PACKAGE VERSION: builds the tool unless this version is there.
define install-tool
	@$(GO) version -m $(TOOLS)/$(1) 2>/dev/null | grep -q "^[[:space:]]*mod[[:space:]].*[[:space:]]$(3)\>" || \
		{ echo "installing $(1) $(3)"; GOBIN=$(TOOLS) $(GO) install $(2)@$(3); }
endef

# The S3-compatible store of tests (test/testkit/s3test).
ensure-s3:
	$(call install-tool,versitygw,github.com/versity/versitygw/cmd/versitygw,$(VERSITYGW_VERSION))

tools:
	$(call install-tool,golangci-lint,github.com/golangci/golangci-lint/v2/cmd/golangci-lint,$(GOLANGCI_LINT_VERSION))
	$(call install-tool,sqlc,github.com/sqlc-dev/sqlc/cmd/sqlc,$(SQLC_VERSION))
	$(call install-tool,oapi-codegen,github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen,$(OAPI_CODEGEN_VERSION))
