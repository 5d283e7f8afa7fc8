//! The messages of the compiler. The goldens belong to the pinned toolchain.

use lock_core::testing::limit;

#[test]
#[limit(600)]
fn messages() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
