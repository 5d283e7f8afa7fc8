//! Makes known the switch that `--instructions` asks for.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(rustix_use_libc)");
    println!("cargo::rerun-if-changed=build.rs");
}
