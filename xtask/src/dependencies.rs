//! What all dependencies together ask of whoever uses us: their licences and their Rust version.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::spdx;

/// Licences that ask for no more than a notice, and name no condition on the program as a whole.
const ALLOWED: [&str; 8] = [
    "MIT",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "Unicode-3.0",
    "Zlib",
];

/// What is wrong with the dependencies that `Cargo.lock` names, for every platform and feature.
pub(crate) fn complaints(root: &Path) -> Result<Vec<String>, String> {
    let output = Command::new("cargo")
        .args(["metadata", "--locked", "--all-features", "--format-version", "1"])
        .current_dir(root)
        .output()
        .map_err(|error| format!("cargo metadata: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    let metadata: Value = serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata names no packages")?;
    let manifest = std::fs::read_to_string(root.join("Cargo.toml")).map_err(|error| error.to_string())?;
    let ours = manifest.lines().find_map(|line| line.strip_prefix("rust-version = "));
    let ours = version(ours.ok_or("Cargo.toml states no rust-version")?.trim_matches('"'));
    let mut complaints: Vec<String> = packages.iter().filter_map(|package| licence(package).err()).collect();
    complaints.extend(packages.iter().filter_map(|package| rust_version(package, ours).err()));
    println!("{} packages read", packages.len());
    Ok(complaints)
}

fn licence(package: &Value) -> Result<(), String> {
    let name = format!("{} {}", package["name"], package["version"]).replace('"', "");
    let expression = package["license"].as_str().ok_or_else(|| format!("{name} names no licence"))?;
    match spdx::allowed(expression, &ALLOWED) {
        Ok(true) => Ok(()),
        Ok(false) => Err(format!("{name}: the licence {expression} is not in the list of allowed ones")),
        Err(what) => Err(format!("{name}: {what}")),
    }
}

/// Our stated Rust version must be enough for each of them. Only the stated numbers are compared.
fn rust_version(package: &Value, ours: (u64, u64)) -> Result<(), String> {
    let stated = package["rust_version"].as_str().unwrap_or("1.0");
    if version(stated) <= ours {
        return Ok(());
    }
    let name = format!("{} {}", package["name"], package["version"]).replace('"', "");
    Err(format!("{name} needs Rust {stated}, more than the rust-version that Cargo.toml states"))
}

fn version(text: &str) -> (u64, u64) {
    let mut parts = text.split('.').map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_without_or_with_a_foreign_licence_is_named() {
        let package = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        assert_eq!(licence(&package(r#"{"name":"a","version":"1.0.0","license":"MIT"}"#)), Ok(()));
        let none = licence(&package(r#"{"name":"a","version":"1.0.0","license":null}"#));
        assert_eq!(none.unwrap_err(), "a 1.0.0 names no licence");
        let foreign = licence(&package(r#"{"name":"a","version":"1.0.0","license":"SSPL-1.0"}"#));
        assert!(foreign.unwrap_err().contains("SSPL-1.0"));
    }

    #[test]
    fn a_dependency_that_needs_a_newer_rust_is_named() {
        let package = serde_json::json!({"name": "a", "version": "1.0.0", "rust_version": "1.90.1"});
        assert!(rust_version(&package, (1, 88)).unwrap_err().contains("needs Rust 1.90.1"));
        assert_eq!(rust_version(&package, (1, 90)), Ok(()));
    }

    #[test]
    fn dependencies_of_this_repository_are_in_order() {
        assert_eq!(complaints(&crate::root()), Ok(Vec::new()));
    }
}
