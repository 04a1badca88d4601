# make run, make test: nothing else is needed after a clone. The other targets are for those who
# work on Rollcall itself.

GO      ?= go
BIN     := bin/rollcall
MEASURE := bin/rollcall-bench
# Functions begin at 16 bytes, not at 32, which takes 0.2 MB less; release/build.go says the same.
LINK    := -funcalign=16
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)

# The modules inside this one, which ./... does not reach. Tools come from this module's tool lines.
MODULES := client/grpcresolver deploy/check release
# Those with dependencies larger than this project, whose compilation takes minutes: make test-all has them.
LARGE   := deploy/check release
each     = set -e; for m in $(2); do echo "$$m:"; (cd $$m && $(1)); done
tool     = $$($(GO) tool -n $(1))

# The packages in which goroutines share memory, and so those that the race detector runs for.
SHARED   = $(shell git ls-files -co --exclude-standard '*.go' | grep -vE '^integration/|^cmd/internal/sim/|_test\.go$$' | xargs grep -lE '^\s*go |"sync"|"sync/atomic"|errgroup' | xargs -n 1 dirname | sort -u)

# One form for all: what one target compiled, the next finds, and so does another copy of this directory.
export GOFLAGS := $(filter-out -trimpath,$(shell $(GO) env GOFLAGS)) -trimpath
export GORACE := suppressions=$(CURDIR)/race.supp

.PHONY: plants mutants shape build run test test-all race-node sim states conformance screens pictures alerts site check bench peers compare fuzz eureka-table wild stacks upgrades restarts vuln clients eureka-server release release-check costs clean

build:
	$(GO) build -ldflags '$(LINK) -X main.version=$(VERSION)' -o bin/ ./cmd/rollcall ./cmd/rollcall-bench

# A CP cluster of three processes: HTTP on 127.0.0.1:8761 to 8763. Ctrl-C stops it, data stays.
run: build
	@exec $(BIN) dev --nodes 3

# The clients that the integration tests drive, from their package registries.
clients:
	$(MAKE) -C integration/clients

# The published Eureka server that `rollcall-bench compare` runs beside Rollcall; JDK 17 and Maven build it, and its jar runs
# where it is, with what lies beside it. `make clients` builds it, too.
eureka-server:
	$(MAKE) -C integration/clients eureka-server

# What of the tests make test leaves to make test-all: of integration all but the tests of a list, because they need stock clients
# and servers or take long; of other packages the tests of another list, which need a browser, Java, Prometheus or a quiet machine.
# The tests of a third list run without the race detector, beside the scenarios, which wait for each other.
in         = $(shell sed -n 's/^Test[^ ]* *\([^ ]*\) .*/.\/\1/p' $(1) | sort -u)
names      = $(subst $() ,|,$(strip $(shell sed -n 's/^\(Test[A-Za-z0-9]*\) .*/\1/p' $(1))))
GATE      := ^($(call names,integration/gate.txt))$$
ELSEWHERE := ^($(call names,integration/elsewhere.txt))$$
ALONE     := ^($(call names,integration/alone.txt))$$

# The integration tests have the machine to themselves: the leases of their clusters are a few seconds
# long. Of the others three packages are tested at a time on two processors, because some wait; what takes longest
# and waits most begins first. Each step leaves the outcomes of its tests in a file, for the last line.
PARALLEL := $(shell getconf _NPROCESSORS_ONLN)
OTHERS    = $(filter-out $(SHARED) integration,$(shell $(GO) list -f '{{.Dir}}' ./... | sed 's|^$(CURDIR)/*||'))
packages  = $(addprefix ./,$(filter-out $(MODULES),$(1)))
OUTCOMES := $(CURDIR)/data/tests
outcomes  = --format pkgname --jsonfile-timing-events $(OUTCOMES)/$(1).json --
test: build
	@rm -rf $(OUTCOMES) && mkdir -p $(OUTCOMES)
	$(GO) tool gotestsum $(call outcomes,shared) -race -shuffle=on -skip '$(ELSEWHERE)|$(ALONE)' -timeout 60m -p $(shell expr $(PARALLEL) '*' 3 / 2) ./store/consensus ./cmd/rollcall ./cmd/internal/node $(call packages,$(SHARED))
	$(GO) tool gotestsum $(call outcomes,alone) -shuffle=on -timeout 60m -run '$(ALONE)' $(call in,integration/alone.txt) & alone=$$!; \
	$(GO) tool gotestsum $(call outcomes,others) -shuffle=on -timeout 60m -skip '$(ELSEWHERE)' . $(call packages,$(OTHERS)); others=$$?; wait $$alone && exit $$others
	@gotestsum=$(call tool,gotestsum); $(call each,"$$gotestsum" $(call outcomes,$$(basename $$m)) -race -shuffle=on ./...,$(filter-out $(LARGE),$(MODULES)))
	ROLLCALL_BIN=$(CURDIR)/$(BIN) $(GO) tool gotestsum $(call outcomes,integration) -shuffle=on -timeout 60m -parallel $(shell expr $(PARALLEL) '*' 2) -run '$(GATE)' ./integration
	@.ci/outcomes $(OUTCOMES)

# What make check and make test leave out because it takes long, seldom breaks, or needs what others made: stock clients and servers,
# browsers, the site, other build tags, the modules with large dependencies, fuzzing, each benchmark once, upgrades from each release,
# all older stacks.
# The first node of each cluster of the integration tests, and the scenarios in virtual time, have the race detector here.
test-all: export ROLLCALL_RACE_BIN := $(CURDIR)/$(BIN)-race
test-all: check race-node clients site test
	$(GO) test -shuffle=on -run '$(ELSEWHERE)' $(call in,integration/elsewhere.txt)
	ROLLCALL_BIN=$(CURDIR)/$(BIN) $(GO) test -shuffle=on -timeout 60m -parallel $(shell expr $(PARALLEL) '*' 2) -skip '$(GATE)' ./integration
	$(GO) vet -overlay integration/testdata/planted/overlay.json ./cmd/internal/node
	$(GO) vet -tags kept ./cmd/bench/report
	$(GO) vet -tags nextlevel,nogate ./fsm/... ./httpd/own
	$(GO) vet -tags skiplevel ./fsm/codec ./fsm/kv
	@staticcheck=$(call tool,staticcheck); $(call each,"$$staticcheck" ./...,$(filter-out $(LARGE),$(MODULES)))
	@$(call each,$(GO) vet ./...,$(MODULES))
	$(GO) test -tags nextlevel -run Level ./fsm ./replication/rollcallpeer
	$(GO) test -tags kept -run Kept -timeout 20m ./cmd/bench/report
	@$(call each,$(GO) test -shuffle=on ./...,$(LARGE))
	$(GO) test -race -skip '^TestSeeds$$' -timeout 30m ./cmd/internal/sim
	ROLLCALL_BIN=$(CURDIR)/$(BIN) ROLLCALL_BENCH_INSTANCES=2000 $(GO) test -run '^$$' -bench . -skip ApplyAtTheLimits -benchtime 1x -timeout 30m $(BENCHED)
	$(MAKE) upgrades stacks
	$(MAKE) fuzz FUZZTIME=5s

race-node:
	$(GO) build -race -ldflags '$(LINK) -X main.version=$(VERSION)' -o $(BIN)-race ./cmd/rollcall

# Whole nodes in virtual time, under faults that are drawn, for as long as SIM says; make test runs some. A failure is shortened,
# and shown as the schedule that cmd/internal/sim/testdata/found keeps.
SIM      ?= 10m
SIM_FROM ?= 1000
sim:
	ROLLCALL_SIM_FROM=$(SIM_FROM) ROLLCALL_SIM_FOR=$(SIM) $(GO) test -count=1 -timeout 24h -run '^TestSeeds$$' -v ./cmd/internal/sim

# The faults that are kept, planted one after the other: which drawn runs or tests find each, three times. Takes long.
plants:
	$(GO) run ./internal/devtool faults -times 3 $(PLANTS)

# One operator changed in each of MUTANTS places, drawn by SEED: do the tests of its package, or else the drawn runs, find it?
SEED    ?= 1
MUTANTS ?= 60
mutants:
	$(GO) run ./internal/devtool mutants -seed $(SEED) -n $(MUTANTS) -by '$(GO) test {}' -by '$(GO) test ./store/... ./replication/... ./httpd/...' -by '$(GO) test ./cmd/internal/sim' store replication httpd
# Sequences of all operations in all kinds of states, from a seed of their own; make test tries the same ones each time.
STATES      ?= 100000
STATES_SEED ?= $(shell date +%s)
states:
	ROLLCALL_STATES=$(STATES) ROLLCALL_STATES_SEED=$(STATES_SEED) $(GO) test -count=1 -timeout 24h -run '^TestStates$$' -v ./replication

# The protocol's test suite against real nodes, with and without consensus, check by check.
conformance: build
	ROLLCALL_BIN=$(CURDIR)/$(BIN) $(GO) test -count=1 -run '^TestConformance$$' -v ./integration

# Every older stack of Eureka's Java clients; `make test-all` runs a third of them beforehand. ROLLCALL_STACKS is a regular expression of their names.
ROLLCALL_STACKS ?= .
stacks: build clients
	ROLLCALL_STACKS='$(ROLLCALL_STACKS)' ROLLCALL_BIN=$(CURDIR)/$(BIN) $(GO) test -count=1 -timeout 30m -run '^TestStacksLive' -v ./integration

# Upgrades from each release, which are built from the history, and to the next level of the formats, in all orders of three
# nodes, under 2,000 heartbeats a second; `make test` does one order to the next level, with fewer.
ROLLCALL_UPGRADE_KEEPERS ?= 4000
upgrades: build
	ROLLCALL_UPGRADE_ORDERS=all ROLLCALL_UPGRADE_KEEPERS=$(ROLLCALL_UPGRADE_KEEPERS) ROLLCALL_BIN=$(CURDIR)/$(BIN) $(GO) test -count=1 -timeout 90m -run 'Upgrade' -v ./integration

# Pictures of every screen of the dashboard in every state, light and dark, wide and narrow: to be looked at.
screens: clients
	ROLLCALL_SCREENS=$(CURDIR)/data/screens $(GO) test -count=1 -timeout 20m -run 'TestScreensAreUsableInABrowser' ./httpd
	@echo 'pictures are in data/screens'

# The pictures that README and docs/run/dashboard.md show, of three real nodes in trouble; two minutes. To be looked at, and committed.
pictures: build
	ROLLCALL_PICTURES=$(CURDIR)/docs/pictures ROLLCALL_BIN=$(CURDIR)/$(BIN) $(GO) test -count=1 -run '^TestPicturesOfDocuments$$' ./integration
	@echo 'pictures are in docs/pictures'

# Two faults, and the alerts that Debian's Prometheus raises by the rules as they are deployed, with their minutes: seven
# to fifteen of them. `make test-all` makes all faults, with times that are divided by 20.
alerts: build
	ROLLCALL_ALERTS=1 ROLLCALL_TEST_ALL=1 ROLLCALL_BIN=$(CURDIR)/$(BIN) $(GO) test -count=1 -timeout 60m -run '^TestPrometheusRaisesTheAlerts' -v ./integration

# The pages of docs as a site, which any web server shows; Node.js and npm build it. To look at it: cd site && npx vitepress preview
site: data/site/.stamp
	@echo 'the site is in data/site'

data/site/.stamp: site/node_modules/.stamp go.mod httpd/dashboard/assets/icon.svg $(shell find docs/ site/ -name node_modules -prune -o -print)
	@cd site && npx --no-install vitepress build
	@touch $@

site/node_modules/.stamp: site/package.json site/package-lock.json site/.npmrc
	@cd site && npm ci --loglevel=error
	@touch $@

check:
	@unformatted=$$(gofmt -l $$(git ls-files -co --exclude-standard '*.go')); \
	  if [ -n "$$unformatted" ]; then echo "gofmt would change:"; echo "$$unformatted"; exit 1; fi
	$(GO) vet ./...
	$(GO) tool staticcheck ./...
	$(GO) run ./internal/devtool shape -check
	$(GO) test -run 'TestImports|TestStateMachine|TestModule' .

# COUNT rounds of the benchmarks whose names BENCH matches; docs/benchmarks.md explains them. With BASE, another server's program,
# each round measures that one, too. The nodes' data is on the disk of this directory.
COUNT   ?= 6
BENCH   ?= .
BASE    ?=
BENCHED := ./cmd/rollcall-bench ./fsm ./fsm/access ./httpd/eurekaroutes
RESULTS := $(CURDIR)/data/bench
measure  = ROLLCALL_BIN=$(1) TMPDIR=$(RESULTS) $(GO) test -run '^$$' -bench '$(BENCH)' -timeout 2h $(2) | tee -a $(RESULTS)/$(3)
bench: build
	@mkdir -p $(RESULTS) && rm -f $(RESULTS)/new.txt $(if $(BASE),$(RESULTS)/old.txt)
	@for round in $$(seq $(COUNT)); do \
	  $(if $(BASE),$(call measure,$(abspath $(BASE)),./cmd/rollcall-bench,old.txt);) \
	  $(call measure,$(CURDIR)/$(BIN),$(BENCHED),new.txt); \
	done
	$(GO) tool benchstat -col /on $(RESULTS)/new.txt
	@if [ -f $(RESULTS)/old.txt ]; then $(GO) tool benchstat old=$(RESULTS)/old.txt new=$(RESULTS)/new.txt; fi
	@! grep -H FAIL $(RESULTS)/*.txt

# Rollcall beside etcd, Consul and a published Eureka server, which are built first, as far as they can be (with modules and
# build cache some GB, a quarter of an hour); then a quarter of an hour. Linux only. docs/benchmarks.md explains the table.
peers: build
	-$(MAKE) -C integration/clients/wild -k peers
	-$(MAKE) eureka-server
	$(MEASURE) peers

# All columns under the same load and faults, five rounds; hours. docs/comparison.md explains it.
compare: build
	$(MEASURE) compare --dcs 2 --out data/comparison

FUZZTIME ?= 30s
fuzz:
	@set -e; for pkg in $$($(GO) list ./...); do \
	  for f in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
	    echo "$$pkg $$f"; $(GO) test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 5s $$pkg; \
	  done; done

# How long every act at every server of a mixed cluster takes until every server shows it; some minutes.
eureka-table: build
	$(MAKE) -C integration/clients java/target/.stamp
	ROLLCALL_BIN=$(CURDIR)/$(BIN) ROLLCALL_EUREKA_TABLE=1 $(GO) test -count=1 -run '^TestTableOfAMixedCluster$$' -v ./integration

# Programs that others wrote for Consul, beside Rollcall and beside a real Consul, which are built first (some GB of modules and
# build cache, half an hour); then a quarter of an hour. Linux only. docs/reference/consul.md lists them.
wild: build
	$(MAKE) -C integration/clients/wild
	ROLLCALL_BIN=$(CURDIR)/$(BIN) ROLLCALL_WILD=1 $(GO) test -count=1 -run '^TestWild' -timeout 90m -v ./integration

# Rolling restarts behind haproxy, twenty in each mode; some minutes. `make test-all` does three.
restarts: build
	ROLLCALL_RESTARTS=20 ROLLCALL_BIN=$(CURDIR)/$(BIN) $(GO) test -count=1 -run '^TestRollingRestarts' -timeout 20m -v ./integration

# How large the house is: lines, places of one thing, bytes of the server, the order in each package. The sizes of another
# commit: .ci/shape COMMIT.
shape:
	.ci/shape

# Archives, packages, an image, lists of components and licences, and checksums, in dist. docs/release.md says what is in them.
RELEASE_VERSION ?=
release:
	cd release && $(GO) run . --version '$(RELEASE_VERSION)' $(if $(SIGN_KEY),--sign-key '$(abspath $(SIGN_KEY))') $(if $(SIGN_PASSWORD_FILE),--sign-password-file '$(abspath $(SIGN_PASSWORD_FILE))')

# That what was made is what it should be, as far as the tools for it are here: a second time the same, lintian, rpm, a chroot
# of Debian, the image as its user, README followed from the archive. docs/release.md says what it needs.
release-check: release clients
	cd release && ROLLCALL_RELEASE=$(CURDIR)/dist ROLLCALL_RELEASE_VERSION='$(RELEASE_VERSION)' $(GO) test -count=1 -timeout 60m -v .
	ROLLCALL_ARCHIVE=$$(ls $(CURDIR)/dist/*_linux_$$($(GO) env GOARCH).tar.gz) $(GO) test -count=1 -timeout 20m -run '^TestReadmeIsTrue$$' -v ./integration

# The table of what each dependency costs, in docs/dependencies.md.
costs:
	cd release && $(GO) run . --costs

vuln:
	$(GO) tool govulncheck ./...
	@govulncheck=$(call tool,govulncheck); $(call each,"$$govulncheck" ./...,$(MODULES))

clean:
	rm -rf bin data dist
