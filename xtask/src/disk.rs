//! Room on the disk: a run of all checks leaves gigabytes, of which each step needs but its own.

use crate::project;
use crate::run::Run;

/// With less than this free, what no later step needs goes.
const SHORT_BYTES: u64 = 6 << 30;

/// Bytes that are free where the target folder is; `None` if nobody can tell.
fn free_bytes() -> Option<u64> {
    let target = project::target().ok()?;
    let there = target.ancestors().find(|folder| folder.exists())?;
    let said = Run::new("df").args(["-P", "-k"]).args([there]).quiet().capture().ok()?.success().ok()?;
    parse(&said)
}

/// The kibibytes that are available, of what `df -P -k` says, in bytes.
fn parse(said: &str) -> Option<u64> {
    said.lines().nth(1)?.split_whitespace().nth(3)?.parse::<u64>().ok()?.checked_mul(1024)
}

/// Says how much is free, if that may be too little.
pub(crate) fn warn() {
    if let Some(free) = free_bytes().filter(|free| *free < SHORT_BYTES) {
        println!(
            "    {} are free for the target folder, and a whole run leaves about 8 GB there: each step's build is removed after it",
            show(free)
        );
    }
}

/// Removes these folders of the target folder if the disk is nearly full.
pub(crate) fn make_room(folders: &[&str]) {
    if folders.is_empty() {
        return;
    }
    let (Ok(target), Some(free)) = (project::target(), free_bytes()) else { return };
    if free >= SHORT_BYTES {
        return;
    }
    for folder in folders {
        let path = target.join(folder);
        match std::fs::remove_dir_all(&path) {
            Ok(()) => println!("    {} are free: removed {}", show(free), project::short(&path)),
            Err(_) if !path.exists() => {}
            Err(error) => {
                println!("    {} are free, and {} cannot be removed: {error}", show(free), project::short(&path))
            }
        }
    }
}

fn show(bytes: u64) -> String {
    format!("{:.1} GB", bytes as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn df_is_understood() {
        let said = "Filesystem     1024-blocks     Used Available Capacity Mounted on\n/dev/vda         263174212 33921234  61922304      36% /\n";
        assert_eq!(parse(said), Some(61_922_304 * 1024));
        assert_eq!(parse("Filesystem 1024-blocks Used Available Capacity Mounted on\n"), None);
        assert_eq!(parse(""), None);
    }
}
