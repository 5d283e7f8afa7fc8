#!/bin/sh
# Builds kube-apiserver 1.37.2, etcd 3.7.0, and a candidate with client-go 0.37.2 into target/servers/kubernetes-1.37.2. The first build
# takes about four minutes on two cores; later runs skip it. Downloads Go modules, whose checksums are in the go.sum beside each go.mod.
# Starts no server: the tests of lock-kubernetes start their own. Without Go or a download, the script says so and continues; the tests
# then name themselves as not run.
set -eu
cd "$(dirname "$0")/.."
. scripts/lib/install.sh

version=1.37.2
tests=$PWD/stores/lock-kubernetes/tests
servers=$PWD/target/servers/kubernetes-$version

skip() { echo "$1: the tests on Kubernetes are not run" >&2; exit 0; }

sources() { find "$1" -type f | LC_ALL=C sort | xargs cat; }

# build PROGRAM FOLDER PACKAGE [FLAGS…]: builds a program from a Go module, unless it was built from the same files already.
build() {
    program=$servers/$1 folder=$tests/$2 package=$3
    shift 3
    if [ -x "$program" ] && sources "$folder" | cmp -s - "$program.built-from"; then return; fi
    command -v go >/dev/null 2>&1 || skip "go is missing"
    echo "building ${program##*/}" >&2
    rm -f "$program.built-from"
    (cd "$folder" && try env CGO_ENABLED=0 go build -buildvcs=false -o "$program" "$@" "$package") || skip "${program##*/} cannot be built"
    sources "$folder" >"$program.built-from"
}

mkdir -p "$servers"
# Without these words the server calls itself 0.0.0.
is=k8s.io/component-base/version
build kube-apiserver servers k8s.io/kubernetes/cmd/kube-apiserver \
    -ldflags "-s -w -X $is.gitVersion=v$version -X $is.gitMajor=1 -X $is.gitMinor=37"
build etcd servers go.etcd.io/etcd/server/v3 -ldflags "-s -w"
build candidate candidate .
