#!/bin/sh
# Checks that the crates can be published: packages, minimal versions, the oldest compiler, licences and advisories.
# A check without its tools is skipped, and named at the end.
#
#   sh scripts/package.sh             checks
#   sh scripts/package.sh --strict    the same, but a skipped check fails
#   sh scripts/package.sh --publish   checks strictly, then publishes, in order
set -eu
cd "$(dirname "$0")/.."

strict=no
publish=no
case "${1:-}" in
    "") ;;
    --strict) strict=yes ;;
    --publish) strict=yes; publish=yes ;;
    *) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac

crates="lock-store lock-redis lock-quorum lock-macros lock-core lock-testing lock-metrics lock-dashboards lock-postgres lock-redisson lock-zookeeper lock-kubernetes lockctl"
skipped=""
step() { printf '\n== %s\n' "$*"; }
skip() { printf 'SKIPPED: %s\n' "$*"; skipped="$skipped
  - $*"; }
has_toolchain() { command -v rustup >/dev/null 2>&1 && rustup toolchain list | grep -q "^$1"; }

packages=""
for crate in $crates; do packages="$packages -p $crate"; done

step "packages"
rm -rf target/packages/package
# shellcheck disable=SC2086 # a list of words
cargo package --locked --allow-dirty --no-verify --target-dir target/packages $packages

step "dashboards and rules in every form, as a release has them"
for form in plain kubernetes grafana-operator mixin; do
    cargo run --locked -q -p lock-dashboards -- --form "$form" --to "target/packages/dashboards/$form"
done

step "each by what is in its archive, with minimal versions of our own dependencies"
# A workspace of the archives, which depend on each other as on crates from a registry. Its code is checked but never run.
archives=$(mktemp -d)
trap 'rm -rf "$archives"' EXIT
{
    printf '[workspace]\nresolver = "3"\nmembers = ["*"]\n[patch.crates-io]\n'
    for crate in $crates; do printf '%s.path = "%s"\n' "$crate" "$crate"; done
} >"$archives/Cargo.toml"
for crate in $crates; do
    mkdir "$archives/$crate"
    tar xf "$(echo target/packages/package/"$crate"-[0-9]*.crate)" -C "$archives/$crate" --strip-components 1
    # Tests, examples and benchmarks need newer versions, but dependents do not build them.
    awk '/^\[/ { dev = /^\[(target\..*\.)?dev-dependencies/ } !dev' "$archives/$crate/Cargo.toml" >"$archives/manifest"
    mv "$archives/manifest" "$archives/$crate/Cargo.toml"
done
cp rust-toolchain.toml "$archives"
target=$PWD/target/packages
# Only the choice of versions needs an unstable option; the build does not use it.
(cd "$archives" && RUSTC_BOOTSTRAP=1 cargo -Z direct-minimal-versions generate-lockfile)
# The badges of the documentation need an unstable option of rustdoc, allowed for these crates only.
export RUSTC_BOOTSTRAP=$(echo "$crates" | tr " -" ",_")
(cd "$archives" && cargo check --workspace --lib --all-features --target-dir "$target")
(cd "$archives" && cargo check -p lockctl --bin lockctl --all-features --target-dir "$target")

step "documentation as docs.rs builds it, of the same"
(cd "$archives" && RUSTDOCFLAGS="--cfg docsrs -D warnings" cargo doc --workspace --no-deps --all-features --target-dir "$target")
unset RUSTC_BOOTSTRAP
grep -q 'Available on <strong>crate feature' "$target/doc/lock_core/struct.RedisStore.html" ||
    { echo "no feature badge on RedisStore" >&2; exit 1; }

minimum=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
step "the oldest compiler, $minimum"
if has_toolchain "$minimum"; then
    # shellcheck disable=SC2086
    cargo "+$minimum" check --locked --all-features --target-dir target/msrv $packages
else
    # Two parts of this check run without the toolchain: clippy knows since when std has each item, and a test reads the dependencies' minimum.
    skip "the oldest compiler: no toolchain $minimum (rustup toolchain install $minimum)"
fi

step "licences, advisories, sources"
if ! cargo deny --version >/dev/null 2>&1; then
    skip "cargo deny: not installed (cargo install --locked cargo-deny)"
elif ! cargo deny fetch db >/dev/null 2>&1; then
    cargo deny --all-features check licenses bans sources
    skip "advisories: their database cannot be reached"
else
    cargo deny --all-features check
fi

if [ -n "$skipped" ]; then
    step "skipped here:$skipped"
    [ "$strict" = no ] || exit 1
fi
if [ "$publish" = yes ]; then
    case "$(sed -n 's/^repository = "\(.*\)"/\1/p' Cargo.toml)" in
        *example.org*) echo "set workspace.package.repository in Cargo.toml first" >&2; exit 1 ;;
    esac
    step "publishing"
    # shellcheck disable=SC2086
    cargo publish --locked $packages
fi
step "the packages are in order"
