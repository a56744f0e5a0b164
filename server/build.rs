//! Tells cargo to build again when a file of the embedded sample workspace comes or goes: `include_dir!` alone
//! notices changed files, not new ones.

fn main() {
    println!("cargo::rerun-if-changed=../examples/workspace");
}
