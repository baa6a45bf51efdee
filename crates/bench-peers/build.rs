//! Bindings of WiredTiger, made from the header of the library that is installed.

#[cfg(feature = "wiredtiger")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rustc-link-lib=wiredtiger");
    let bindings = bindgen::Builder::default()
        .header_contents("wt.h", "#include <wiredtiger.h>")
        .allowlist_function("wiredtiger_(open|strerror|version)")
        .allowlist_var("WT_(NOTFOUND|ROLLBACK)")
        .generate_comments(false)
        .layout_tests(false)
        .generate()
        .map_err(|error| format!("{error} (./install-debian.sh installs libwiredtiger-dev)"))?;
    let out = std::path::PathBuf::from(std::env::var("OUT_DIR")?);
    bindings.write_to_file(out.join("wiredtiger.rs"))?;
    Ok(())
}

#[cfg(not(feature = "wiredtiger"))]
fn main() {}
