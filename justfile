# A convenience; the README's commands need nothing but cargo and sh.

# List what there is
default:
    @just --list

# Run every check, as CI does
check:
    sh scripts/lint.sh
    sh scripts/test.sh

# Run the tests
test:
    sh scripts/test.sh

# Check that the crates can be published
package:
    sh scripts/package.sh

# Show the flash sale, with the lock and without
demo:
    cargo run -p lock-examples
    cargo run -p lock-examples -- --without-lock

# Build the documentation and open it
docs:
    cargo doc --workspace --no-deps --all-features --open
