//! What the compiler says. The goldens belong to the pinned toolchain.

use lock_core::testing::limit;

#[test]
#[limit(600)]
fn messages() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/ui/fail/*.rs");
    cases.pass("tests/ui/pass/*.rs");
}
