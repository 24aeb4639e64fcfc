//! Where things are.

use crate::run::Run;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The root of the repository.
pub(crate) fn root() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| {
        let xtask = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
        let xtask = xtask.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")));
        xtask.parent().expect("xtask is a folder of the repository").to_path_buf()
    })
}

/// Cargo's target folder, wherever the user has put it.
pub(crate) fn target() -> Result<&'static Path, String> {
    static TARGET: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    TARGET.get_or_init(find_target).as_deref().map_err(Clone::clone)
}

fn find_target() -> Result<PathBuf, String> {
    let output = Run::cargo(&["metadata", "--no-deps", "--format-version=1"]).quiet().capture()?.success()?;
    let key = "\"target_directory\":\"";
    let start = output.find(key).ok_or("cargo metadata names no target directory")? + key.len();
    let end = output[start..].find('"').ok_or("cargo metadata is cut short")? + start;
    Ok(PathBuf::from(output[start..end].replace("\\\\", "\\")))
}

/// A folder of ours under the target folder.
pub(crate) fn work(name: &str) -> Result<PathBuf, String> {
    Ok(target()?.join("xtask").join(name))
}

/// The same, empty.
pub(crate) fn fresh(name: &str) -> Result<PathBuf, String> {
    let path = work(name)?;
    if path.exists() {
        std::fs::remove_dir_all(&path).map_err(|error| format!("cannot empty {}: {error}", path.display()))?;
    }
    make_dir(&path)?;
    Ok(path)
}

/// Makes a folder and those above it.
pub(crate) fn make_dir(path: &Path) -> Result<(), String> {
    std::fs::create_dir_all(path).map_err(|error| format!("cannot make {}: {error}", path.display()))
}

/// All files below a folder, sorted; none when there is no such folder.
pub(crate) fn files_below(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut dirs = vec![dir.to_path_buf()];
    while let Some(dir) = dirs.pop() {
        let Ok(entries) = std::fs::read_dir(&dir) else { continue };
        for entry in entries.flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => dirs.push(entry.path()),
                Ok(kind) if kind.is_file() => files.push(entry.path()),
                _ => {}
            }
        }
    }
    files.sort();
    files
}

/// A path as the user would type it from the root of the repository.
pub(crate) fn short(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}
