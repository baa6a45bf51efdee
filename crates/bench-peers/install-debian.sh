#!/bin/sh
# What Debian (12 or later) has to have before `cargo build --release` here: a C++ compiler for RocksDB, libclang
# for the bindings, liburing for its asynchronous reads; WiredTiger as a library.
set -eu
packages="g++ make pkg-config libclang-dev liburing-dev libwiredtiger-dev"
if [ "$(id -u)" -eq 0 ]; then
    apt-get update
    # shellcheck disable=SC2086
    exec apt-get install -y --no-install-recommends $packages
fi
# shellcheck disable=SC2086
exec sudo sh -c "apt-get update && apt-get install -y --no-install-recommends $packages"
