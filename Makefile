# SPDX-License-Identifier: Apache-2.0
# A front for Meson, so that nobody has to know it. All output is in build/.
#
#   make                    the library and the command, optimised, without tests
#   make install PREFIX=/usr/local DESTDIR=
#   make test               builds and tests in every way; the last line is the sum
#   make check-asan         the tests under address+undefined sanitizer only
#   make check-tsan         the tests under thread sanitizer only
#   make demo               a store at work, from nothing
#   make figures            the README's table; KVONCE_TRACES=DIR adds the public trace
#   make clean

PREFIX ?= /usr/local
RELEASE = build/release

.PHONY: all install test check check-asan check-tsan demo figures packages clean

all: $(RELEASE)/build.ninja
	ninja -C $(RELEASE)

$(RELEASE)/build.ninja:
	meson setup $(RELEASE) --buildtype=release --prefix=$(PREFIX) -Dchecks=false -Dtests=false

install: all
	meson configure $(RELEASE) -Dprefix=$(PREFIX)
	meson install -C $(RELEASE)

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
	KVONCE=$(CURDIR)/$(RELEASE)/src/cli/kvonce tools/demo.sh

figures: packages
	$(MAKE) all
	python3 bench/replay_figures.py $(CURDIR)/$(RELEASE)/src/cli/kvonce

clean:
	rm -rf build
