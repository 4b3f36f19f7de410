# Everything that people and CI run. `make help` lists it.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

# libvirt is opened at run time, so that nothing of it is needed to build. gin leaves out MessagePack, which nothing
# here speaks: no package takes longer to compile. Go itself looks names up (hosts file and DNS) and not libc, so that
# programs with and without C share what is compiled. Without the paths of the source, a clone in another directory
# takes what is compiled from Go's cache.
export GOFLAGS := -tags=libvirt_dlopen,nomsgpack,netgo,osusergo -trimpath $(if $(MODFLAG),$(MODFLAG))
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/director
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
COMMIT := $(shell git rev-parse --short HEAD 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)
KUBERNETES ?= 1.37

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z][a-z0-9/_-]*:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | sort | \
		awk -F'\t' '{printf "  %-18s %s\n", $$1, $$2}'

.PHONY: build
build: bin/director bin/directorctl bin/pretend-ansible ## Build the director, its command line and its simulation

.PHONY: manual
manual: ## Build the manual that the director serves at /docs, or take it from the cache
	web/manual/build.sh

.PHONY: console
console: ## Build the web console that the director serves at /, or take it from the cache
	web/console/build.sh

# One after the other, also with -j: programs that are compiled at once compile twice what they share.
.PHONY: bin/director bin/directorctl bin/pretend-ansible
bin/director: manual console bin/directorctl
bin/pretend-ansible: bin/director
bin/director bin/directorctl bin/pretend-ansible: bin/%:
	images/compile.sh go build -ldflags '$(LDFLAGS)' -o $@ ./cmd/$*

.PHONY: collection
collection: ## Build the Ansible collection kaas.director as an archive that ansible-galaxy installs
	collection/stage.sh bin/collection
	ansible-galaxy collection build --force --output-path bin bin/collection

.PHONY: demo
demo: ## A real cluster on real VMs, from a model: one master, one worker
	test/demo/demo.sh up

.PHONY: demo/clean
demo/clean: ## Take away all that make demo made, except the caches
	test/demo/demo.sh clean

.PHONY: test
test: ## Everything: lint, tests on real parts, clusters from creation to deletion (in containers without KVM)
	test/run.sh

.PHONY: test/vm
test/vm: ## Everything, with every scenario on VMs: hours where there is no KVM
	KAAS_TEST_GUESTS=vm test/run.sh

.PHONY: test/unit
test/unit: ## The tests that need no VM
	test/lab/need.sh ansible openssh-server libvirt0 postgresql rsyslog rsyslog-gnutls slapd \
		samba-ad-dc samba-ad-provision iproute2 qemu-utils fdisk e2fsprogs systemd util-linux
	go test ./...

.PHONY: test/console
test/console: build ## The console: its parts, and all of it in a browser against a rehearsing director
	test/lab/need.sh chromium qemu-utils fdisk e2fsprogs
	web/console/test.sh

.PHONY: test/race
test/race: ## All unit tests, and the whole daemon in the kill loop, under the race detector
	go test -race ./director/...
	RACE=1 KILLS=$(or $(KILLS),20) test/kill/kill.sh

.PHONY: fuzz
fuzz: ## Every fuzz target for FUZZTIME (10m) each; make test gives each 20 s
	test/fuzz.sh $(or $(FUZZTIME),10m)

.PHONY: test/e2e test/nodes test/ha test/certs test/outer test/consul test/restore
test/e2e: build ## Create, kill the director half way, resume, check from outside, delete; on real VMs
	test/e2e/e2e.sh
test/nodes: build ## Drain, out and in, an outer plan, scale, a destroyed VM, an upgrade; in containers without KVM
	test/e2e/e2e.sh nodes
test/ha: build ## Three masters: one off and on, out and in, an outer plan, an upgrade, a dead one replaced; likewise
	test/e2e/e2e.sh ha
test/certs: build ## Three masters, two workers: certificates are renewed under load, and then end; containers as there
	test/e2e/e2e.sh certs
	test/e2e/e2e.sh ca
test/outer: build ## A cluster below an outer authority, which ends, and then below a step-ca; containers as there
	test/e2e/e2e.sh outer
test/consul: build ## A cluster and a Consul that find each other, with agents on the nodes; containers as there
	test/e2e/e2e.sh consul
test/restore: build ## Three masters, all destroyed, and restored on new VMs from a backup of etcd; containers as there
	test/e2e/e2e.sh restore

.PHONY: bench/kubeadm
bench/kubeadm: build ## How long a cluster takes, and how long kubeadm by hand takes on nodes like its own
	test/e2e/e2e.sh kubeadm

.PHONY: test/kill
test/kill: ## Kill the director KILLS times (200) on pretended hypervisors, fill its disk, lock its database
	KILLS=$(or $(KILLS),200) test/kill/kill.sh

.PHONY: lab/up lab/down lab/shell lab/status
lab/up: ## Start a hypervisor host of our own in namespaces
	test/lab/lab up
lab/down: ## Stop it and remove all that it made
	test/lab/lab down
lab/shell: ## A shell inside it
	test/lab/lab shell
lab/status: ## What runs in it
	test/lab/lab status

.PHONY: release
release: ## Build the release bundle of Kubernetes $(KUBERNETES), or take it from the cache
	images/release/build.sh --kubernetes $(KUBERNETES)

.PHONY: image
image: ## Build the node image of Kubernetes $(KUBERNETES), or take it from the cache
	images/node/build.sh --release "$$(images/release/build.sh --kubernetes $(KUBERNETES) | tail -1)"

.PHONY: appliance
appliance: build ## Build the director as an appliance (qcow2, OVA), or take it from the cache
	images/director/build.sh

.PHONY: appliance/compare
appliance/compare: ## Build the appliance twice from nothing, and say what differs
	images/director/compare.sh

.PHONY: test/appliance
test/appliance: build ## Boot the appliance in a lab: three first boots, a new root disk, and upgrades in place
	images/director/test.sh

.PHONY: lint
lint: ## Go, Ansible, YAML and shell
	test/lint.sh

.PHONY: generate
generate: ## Write the generated pages and golden files
	go test $$(git grep -l 'flag.Bool("update"' -- '*_test.go' | xargs -n1 dirname | sort -u | sed 's,^,./,') -update

.PHONY: verify
verify: generate ## Fail if generated files or module files are stale
	go mod tidy -diff
	git diff --exit-code -- client collection docs director cmd

.PHONY: bench
# BARS chooses some of: first-step, hooks, no-op, plan, wide, vm, kill, log, certificates, backup, consul, idle, fleet.
bench: build ## Measure every bar of docs/develop/benchmarks.md, or some: BARS=first-step,hooks
	go run ./test/bench -bars "$(BARS)"

.PHONY: clean
clean: ## Remove what was built in the tree
	rm -rf bin
