//! `gort completions` and `gort man`: what is generated from the command line's description.

use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Args;
use crate::text::Out;
use crate::{Failure, Outcome, Verdict};

pub(crate) fn completions(shell: Shell, out: &mut Out) -> Outcome {
    // Into memory first: what generates panics if its writer fails.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "gort", &mut script);
    std::io::Write::write_all(out, &script)?;
    Ok(Verdict::Good)
}

pub(crate) fn man(dir: &Path) -> Outcome {
    let cannot = |error| Failure::Other(format!("{}: cannot write man pages there: {error}", dir.display()));
    std::fs::create_dir_all(dir).map_err(cannot)?;
    clap_mangen::generate_to(Args::command(), dir).map_err(cannot)?;
    Ok(Verdict::Good)
}
