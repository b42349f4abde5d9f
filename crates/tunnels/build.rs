//! A new file in `src` becomes a module of the crate (`automod::dir!`). Cargo watches only files that it knows, so this
//! script makes Cargo watch the whole folder.

fn main() {
    println!("cargo:rerun-if-changed=src");
}
