# SPDX-License-Identifier: Apache-2.0
# A front for Meson, so that nobody has to know it. All output is in build/.
#
#   make                    the library and the command, optimised, without tests
#   make install            below PREFIX (/usr/local), the libraries in PREFIX/LIBDIR (lib); DESTDIR stages
#   make uninstall          removes what the last `make install` put there
#   make test               builds and tests in every way; the last line is the sum
#   make check-asan         the tests under address+undefined sanitizer only
#   make check-tsan         the tests under thread sanitizer only
#   make demo               llama.cpp answers a prompt whose KV survived a kill -9, in two minutes; fetches a
#                           prebuilt library and a model of 93 MB into ~/.cache/kvonce. Where they cannot be had:
#   make demo-replay        a trace replayed through a store that is killed half-way
#   make figures            the README's table; KVONCE_TRACES=DIR adds the public trace
#   make bench              the store beside what the machine can do: 8 minutes, 14 GiB of disk;
#                           BENCH="--dir /mnt/nvme --json" hands options on
#   make bench-peers        kvonce beside ten other ways to keep the same blocks, in memory and on the disk: 15 minutes;
#                           installs packages, fetches LMCache and Mooncake into ~/.cache/kvonce (2.1 GB) once;
#                           PEERS="--quick" takes three minutes, PEERS="--write" renews docs/peers.md and the README
#   make test-gemma         a model with a sliding window: fetches Gemma-3-270M, whose weights are under terms of
#                           their own, and restores 1,930 tokens of it bit for bit
#   make test-llama-2000    what `make test` shows at 600 tokens, two builds and six forms, at 2,000: 4 minutes;
#                           TOKENS=N as many
#   make bench-llama        the stock llama-server and kvonce's adapter on the same prompt, and how much two runs
#                           differ with nothing restored: docs/llama.md's tables
#   make study              the five costs: about five minutes, a report in build/study.html;
#                           STUDY="--trace FILE" hands options on; STUDY=--quick takes a minute
#   make stress             eight threads over queues: 10 minutes, and 1 under thread sanitizer
#   make soak               10,000 kills of a process at work (SOAK_KILLS=N others, SOAK_SECONDS=N as long as that
#                           instead), then power cuts, simulated crashes and flipped bits, 20 times what
#                           `make test` does (SOAK_FACTOR=N), and the model's larger sets: some hours
#   make fuzz               each fuzz target for a minute, with clang's libFuzzer; FUZZ=target one, SECONDS=N as long;
#                           what it finds is in build/fuzz/found
#   make coverage           branches that the tests take of block, index, store, ledger and the disk tier
#   make clean

PREFIX ?= /usr/local
LIBDIR ?= lib
RELEASE = build/release

.PHONY: coverage fuzz soak stress all install uninstall test check check-asan check-tsan demo demo-replay figures bench bench-llama bench-peers study test-gemma test-llama-2000 packages clean

all: $(RELEASE)/build.ninja
	ninja -C $(RELEASE)

$(RELEASE)/build.ninja:
	meson setup $(RELEASE) --buildtype=release -Dchecks=false -Dtests=false

# PREFIX and LIBDIR of this call hold, whatever an earlier one said. `lib` is where people look for
# PREFIX/lib/pkgconfig, on a multiarch machine too. In a system directory the loader's cache is renewed.
install: $(RELEASE)/build.ninja
	meson configure $(RELEASE) -Dprefix="$(PREFIX)" -Dlibdir="$(LIBDIR)"
	ninja -C $(RELEASE)
	$(if $(DESTDIR),DESTDIR="$$(realpath -m "$(DESTDIR)")") meson install -C $(RELEASE) --no-rebuild
	-@case "$(DESTDIR)$(PREFIX)" in /usr|/usr/*) ldconfig ;; esac

uninstall:
	ninja -C $(RELEASE) uninstall

packages:
	tools/install-packages.sh

test: packages
	python3 tests/run.py

check: packages
	python3 tests/run.py plain

check-asan: packages
	python3 tests/run.py asan

check-tsan: packages
	python3 tests/run.py tsan

demo: packages
	$(MAKE) all
	BUILD=$(CURDIR)/$(RELEASE) tools/demo.sh

demo-replay: packages
	$(MAKE) all
	KVONCE=$(CURDIR)/$(RELEASE)/src/cli/kvonce tools/demo-replay.sh

figures: packages
	$(MAKE) all
	python3 bench/replay_figures.py $(CURDIR)/$(RELEASE)/src/cli/kvonce

bench: packages
	$(MAKE) all
	$(RELEASE)/src/cli/kvonce bench $(BENCH)

bench-peers: packages
	$(MAKE) all
	bench/peers/bench.sh $(RELEASE) --json build/peers.json $(PEERS)

test-gemma: packages
	test -d build/plain || meson setup build/plain --werror
	ninja -C build/plain tests/llama/llama_window_test
	parts=$$(tools/llama-parts.sh --gemma) && eval "$$parts" && export KVONCE_LLAMA_LIB && \
	    KVONCE_LLAMA_MODEL="$$KVONCE_LLAMA_GEMMA" build/plain/tests/llama/llama_window_test

TOKENS ?= 2000
test-llama-2000: packages
	test -d build/plain || meson setup build/plain --werror
	ninja -C build/plain tests/llama/llama_matrix_test
	KVO_TEST_TOKENS=$(TOKENS) tests/llama/with_parts.sh build/plain/tests/llama/llama_matrix_test

bench-llama: packages
	$(MAKE) all
	parts=$$(tools/llama-parts.sh) && eval "$$parts" && \
	    export KVONCE_LLAMA_LIB KVONCE_LLAMA_MODEL KVONCE_LLAMA_SERVER && \
	    python3 tools/llama_baseline.py $(CURDIR)/$(RELEASE)
	test -d build/plain || meson setup build/plain --werror
	ninja -C build/plain tests/llama/llama_splits_test
	tests/llama/with_parts.sh build/plain/tests/llama/llama_splits_test

STUDY ?=
study: packages
	$(MAKE) all
	$(RELEASE)/src/cli/kvonce study --html build/study.html --json build/study.json $(STUDY)

stress: packages
	test -d build/plain || meson setup build/plain --werror
	ninja -C build/plain tests/store/store_stress_test
	KVO_TEST_SECONDS=600 build/plain/tests/store/store_stress_test
	test -d build/tsan || meson setup build/tsan -Db_sanitize=thread -Db_lundef=false
	ninja -C build/tsan tests/store/store_stress_test
	KVO_TEST_SECONDS=60 build/tsan/tests/store/store_stress_test

SOAK_KILLS ?= 10000
SOAK_SECONDS ?=
SOAK_FACTOR ?= 20
SOAK_TESTS = crash/crash_kill crash/crash_power sim/sim_random sim/sim_exhaustive faults/faults_flip
soak: packages
	test -d build/plain || meson setup build/plain --werror
	ninja -C build/plain $(SOAK_TESTS:%=tests/%_test)
	KVO_TEST_KILLS=$(SOAK_KILLS) KVO_TEST_SECONDS=$(SOAK_SECONDS) build/plain/tests/crash/crash_kill_test
	KVO_TEST_ROUNDS=$$((30 * $(SOAK_FACTOR))) build/plain/tests/crash/crash_power_test || test $$? = 77
	KVO_TEST_SEED=$$(date +%s) KVO_TEST_ROUNDS=$$((400 * $(SOAK_FACTOR))) build/plain/tests/sim/sim_random_test
	for i in 0 1 2; do KVO_TEST_SEED=$$(date +%s) KVO_TEST_ROUNDS=$(SOAK_FACTOR) \
	    build/plain/tests/sim/sim_exhaustive_test $$i || exit 1; done
	KVO_TEST_ROUNDS=$$((1000 * $(SOAK_FACTOR))) build/plain/tests/faults/faults_flip_test
	python3 model/model_test.py --wide

coverage: packages
	python3 tools/coverage.py

# What libFuzzer weighs inputs with (entropic) costs more than these targets do.
FUZZ ?= $(notdir $(wildcard fuzz/corpus/*))
SECONDS ?= 60
fuzz: packages
	test -d build/fuzz || CC=clang meson setup build/fuzz --werror -Dfuzz=true -Db_sanitize=address,undefined -Db_lundef=false
	ninja -C build/fuzz $(FUZZ:%=fuzz/fuzz_%)
	mkdir -p build/fuzz/found $(FUZZ:%=build/fuzz/corpus/%)
	set -e; for target in $(FUZZ); do echo "==== $$target"; \
	    nice -n 19 build/fuzz/fuzz/fuzz_$$target -max_total_time=$(SECONDS) -entropic=0 -close_fd_mask=1 \
	        -timeout=30 -artifact_prefix=build/fuzz/found/$$target- build/fuzz/corpus/$$target fuzz/corpus/$$target; done

clean:
	rm -rf build
