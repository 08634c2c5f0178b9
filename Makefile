# hostcni. `make` builds; `make install` puts in place what the RPM ships; neither does anything else.
#   make demo    boots a throw-away node and shows the main job       } each installs what it needs,
#   make test    every test      make lint    every check             } as root, on Debian or Fedora
#   make rpm     the packages, from archives that make dist makes       }
#   make soak    the loops at their full length                       }
#   make bench   ADD and DEL against Debian's bridge plugin           }
#   make fuzz    every parser on random input, FUZZ_SECONDS (60) each }

PREFIX    ?= /usr
BINDIR    ?= $(PREFIX)/bin
PLUGINDIR ?= $(PREFIX)/libexec/cni
UNITDIR   ?= $(PREFIX)/lib/systemd/system
DESTDIR   ?=

CARGO            ?= cargo
CARGO_TARGET_DIR ?= $(CURDIR)/target
PROFILE          ?= release
FEATURES         ?=
export CARGO_TARGET_DIR

# What is installed; the tests name their own.
BUILT ?= $(CARGO_TARGET_DIR)/$(if $(filter dev,$(PROFILE)),debug,$(PROFILE))/hostcni
flags := --locked $(if $(FEATURES),--features $(FEATURES))
tests := --locked --features failpoints

dist  := $(CARGO_TARGET_DIR)/rpm

# The node tests' Debian root is kept in $HOSTCNI_CACHE, or /var/cache/hostcni-test.

# Targets of tests/ by what they need: node_* a booted node, net_* root and namespaces, the others nothing.
targets    := $(basename $(notdir $(wildcard tests/*.rs)))
node_tests := $(filter node%,$(targets))
net_tests  := $(filter net_%,$(targets))
unit_tests := $(filter-out $(node_tests) $(net_tests),$(targets))

.PHONY: build install dist rpm lint test test-build test-unit test-net test-node soak demo bench fuzz clean setup-build

# The plugin is a process for each request, and a third of its time goes to the dynamic linker: where the C library is
# there for it, the binary is linked statically (it stays position-independent). STATIC=no links it as usual.
STATIC ?= $(shell echo 'int main(void){return 0;}' | $(CC) -static-pie -x c -o /dev/null - 2>/dev/null && echo yes || echo no)

build:
	$(CARGO) rustc $(flags) --profile $(PROFILE) --bin hostcni $(if $(filter yes,$(STATIC)),-- -C target-feature=+crt-static)

# Each file arrives by a rename, so that a plugin that is being executed, or read, is always whole.
define place
	install -D -m $(1) $(2) $(DESTDIR)$(3).new && mv -fT $(DESTDIR)$(3).new $(DESTDIR)$(3)
endef

install:
	@test -x $(BUILT) || { echo "$(BUILT) is not there: run make build first" >&2; exit 1; }
	$(call place,0755,$(BUILT),$(BINDIR)/hostcni)
	install -d $(DESTDIR)$(PLUGINDIR)
	ln -sfr $(DESTDIR)$(BINDIR)/hostcni $(DESTDIR)$(PLUGINDIR)/hostcni.new
	mv -fT $(DESTDIR)$(PLUGINDIR)/hostcni.new $(DESTDIR)$(PLUGINDIR)/hostcni
	for unit in $(notdir $(wildcard systemd/*.service systemd/*.socket systemd/*.target)); do \
	  $(call place,0644,systemd/$$unit,$(UNITDIR)/$$unit) || exit 1; done
	$(call place,0644,systemd/80-hostcni.preset,$(PREFIX)/lib/systemd/system-preset/80-hostcni.preset)
	for file in $$(cd packaging/usr && find . -type f | cut -c3-); do \
	  $(call place,0644,packaging/usr/$$file,$(PREFIX)/$$file) || exit 1; done

	install -d $(DESTDIR)/etc/hostcni/config.d
	test -e $(DESTDIR)/etc/hostcni/config.toml || \
	  { $(call place,0644,packaging/etc/hostcni/config.toml,/etc/hostcni/config.toml); }

# The two archives of the RPM. The same commit gives the same bytes.
dist: setup-build
	packaging/rpm/dist $(dist)

# The packages are put below $(CARGO_TARGET_DIR)/rpm. RPMFLAGS="--without check", say, is for rpmbuild.
rpm: setup-build setup-rpm dist
	packaging/rpm/build $(dist) $(RPMFLAGS)

lint: setup-build setup-lint
	$(CARGO) fmt --check
	$(CARGO) clippy --locked --all-targets -- -D warnings
	$(CARGO) clippy --locked --all-targets --features failpoints -- -D warnings
	shellcheck -x -P SCRIPTDIR $$(grep -rlE '^#!/bin/(ba)?sh' .ci tests/support packaging)
	tests/support/verify-units
	@if cargo deny --version >/dev/null 2>&1; then cargo deny --offline check licenses bans; fi

# Everything is built before anything runs, so that no test waits for a compiler.
test: setup-build setup-unit setup-net setup-node setup-rpm test-build
	@$(MAKE) --no-print-directory --keep-going test-unit test-net test-node

test-build:
	$(CARGO) test $(tests) --no-run
	tests/support/older $(CARGO_TARGET_DIR)/tmp/older

test-unit: setup-build setup-unit
	$(CARGO) test $(tests) --lib --bins $(addprefix --test ,$(unit_tests))

test-net: setup-build setup-net
	$(if $(net_tests),$(CARGO) test $(tests) $(addprefix --test ,$(net_tests)))

test-node: setup-build setup-net setup-node setup-rpm
	@tests/support/node-root >/dev/null
	$(if $(node_tests),$(CARGO) test $(tests) $(addprefix --test ,$(node_tests)))

# The loops at their full length.
soak: setup-build setup-net setup-node test-build
	@tests/support/node-root >/dev/null
	HOSTCNI_SOAK=1 $(CARGO) test $(tests) --test node -- --nocapture under_load

demo: setup-build setup-node build
	tests/support/demo PROFILE=$(PROFILE)

# Rewrites the figures of docs/performance.md; BENCHFLAGS="--only NAME,NAME" measures a few, and prints.
BENCHFLAGS ?= --write
bench: setup-build setup-bench build
	install -D $(BUILT) $(CARGO_TARGET_DIR)/bench/hostcni # cargo bench builds another one in its place
	HOSTCNI_BUILT=$(CARGO_TARGET_DIR)/bench/hostcni $(CARGO) bench --locked --bench plugins -- $(BENCHFLAGS)

# What a target finds goes below the target directory; the seeds are fuzz/corpus, which `make test` runs, too. The
# instrumentation is an unstable option of the compiler's, hence RUSTC_BOOTSTRAP.
FUZZ_SECONDS ?= 60
fuzz_targets := $(basename $(notdir $(wildcard fuzz/fuzz_targets/*.rs)))

fuzz: setup-build setup-fuzz
	@$(CARGO) fuzz --version >/dev/null 2>&1 || $(CARGO) install --locked cargo-fuzz
	RUSTC_BOOTSTRAP=1 $(CARGO) fuzz build --sanitizer none
	@for target in $(fuzz_targets); do \
	  found=$(CARGO_TARGET_DIR)/fuzz/$$target && mkdir -p $$found && \
	  RUSTC_BOOTSTRAP=1 $(CARGO) fuzz run --sanitizer none $$target $$found fuzz/corpus/$$target -- \
	    -max_total_time=$(FUZZ_SECONDS) -timeout=10 -print_final_stats=1 || exit 1; done

setup-build:
	@tests/support/packages build
	@tests/support/rust

setup-%:
	@tests/support/packages $*

clean:
	$(CARGO) clean
