//! The messages of the compiler. The goldens belong to the pinned toolchain.

#[test]
fn messages() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
