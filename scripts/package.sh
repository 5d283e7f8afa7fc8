#!/bin/sh
# Checks that the crates can be published: packages, minimal versions, the oldest compiler, licences and advisories.
# What a place lacks the tools for is skipped, and named at the end.
#
#   sh scripts/package.sh             checks
#   sh scripts/package.sh --strict    the same, and what is skipped fails
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

crates="lock-macros lock-core lock-metrics lock-dashboards lockctl lock-postgres"
skipped=""
step() { printf '\n== %s\n' "$*"; }
skip() { printf 'SKIPPED: %s\n' "$*"; skipped="$skipped
  - $*"; }
has_toolchain() { command -v rustup >/dev/null 2>&1 && rustup toolchain list | grep -q "^$1"; }

packages=""
for crate in $crates; do packages="$packages -p $crate"; done

# Nothing that is built here is run: no debugger looks at it.
export CARGO_PROFILE_DEV_DEBUG=false

step "packages, each built from its archive alone"
# The crates depend on each other: cargo publishes them in order, here into a registry of its own. What it unpacked and
# built from there the last time, under the same version, it would take for the new.
rm -rf target/publish
for crate in $crates; do
    rm -rf "${CARGO_HOME:-$HOME/.cargo}"/registry/src/-*/"$crate"-[0-9]* "${CARGO_HOME:-$HOME/.cargo}"/registry/cache/-*/"$crate"-[0-9]*
done
# shellcheck disable=SC2086 # a list of words
cargo publish --dry-run --locked --allow-dirty --target-dir target/publish $packages

step "documentation as docs.rs builds it"
# The badges need an unstable option of rustdoc, allowed for our own crates only.
# shellcheck disable=SC2086
RUSTC_BOOTSTRAP=lock_macros,lock_core,lock_metrics,lock_dashboards,lockctl,lock_postgres RUSTDOCFLAGS="--cfg docsrs -D warnings" \
    cargo doc --locked --no-deps --all-features --target-dir target/docsrs $packages
grep -q 'Available on <strong>crate feature' target/docsrs/doc/lock_core/struct.RedisStore.html ||
    { echo "no feature badge on RedisStore" >&2; exit 1; }

minimum=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
step "the oldest compiler, $minimum"
if has_toolchain "$minimum"; then
    # shellcheck disable=SC2086
    cargo "+$minimum" check --locked --all-features --target-dir target/msrv $packages
else
    # Two parts of it have tests anywhere: clippy knows the age of what std offers, and no dependency asks for a newer one.
    skip "the oldest compiler: no toolchain $minimum (rustup toolchain install $minimum)"
fi

step "minimal versions of our own dependencies"
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
git ls-files -z --cached --others --exclude-standard | xargs -0 tar cf - | tar xf - -C "$copy"
rm "$copy/Cargo.lock"
# Tests, examples and benchmarks ask for newer versions, and nobody depends on them.
sed -i.bak 's#, "examples", "benches", "proof"##' "$copy/Cargo.toml"
for crate in $crates; do
    folder=$crate
    [ "$crate" != lock-dashboards ] || folder=dashboards
    [ "$crate" != lock-postgres ] || folder=stores/lock-postgres
    awk '/^\[/ { dev = /^\[dev-dependencies/ } !dev' "$folder/Cargo.toml" >"$copy/$folder/Cargo.toml"
done
# Only the choice of versions needs an unstable option. Nothing is built with it.
(cd "$copy" && RUSTC_BOOTSTRAP=1 cargo -Z direct-minimal-versions generate-lockfile)
# shellcheck disable=SC2086
(cd "$copy" && cargo check --lib --all-features --target-dir "$OLDPWD/target/minimal" $packages)
(cd "$copy" && cargo check --bin lockctl --all-features --target-dir "$OLDPWD/target/minimal" -p lockctl)

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
