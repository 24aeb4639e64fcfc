//! The runtime's tests with bad luck on purpose (`--cfg rt_chaos`, see runtime/prim/chaos.rs), in a target folder of their own.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::run::Run;
use crate::{Step, project, steps};

/// How many seeds, unless `RT_CHAOS_ROUNDS` says otherwise. The seed's last bit chooses the border, so runs draw both.
const ROUNDS: u64 = 1;

/// How long each of the three storms of the collected heap lasts.
const STORM_SECONDS: &str = "20";

/// `RT_CHAOS_SEED` repeats one round; otherwise the seeds come from the clock.
pub(crate) fn run() -> Step {
    let number = |name: &str| match std::env::var(name) {
        Ok(text) => text.parse::<u64>().map(Some).map_err(|_| format!("{name}={text}: want a number")),
        Err(_) => Ok(None),
    };
    let (first, rounds) = match number("RT_CHAOS_SEED")? {
        Some(seed) => (seed, 1),
        None => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |t| t.as_secs());
            (now, number("RT_CHAOS_ROUNDS")?.unwrap_or(ROUNDS))
        }
    };
    let target = project::target()?.join("chaos");
    for seed in first..first + rounds {
        let border = if seed % 2 == 0 { "membarrier" } else { "fence" };
        let set = |run: Run| {
            run.env("RUSTFLAGS", "--cfg rt_chaos")
                .env("RT_BORDER", border)
                .env("RT_CHAOS_SEED", seed.to_string())
                .env("RT_STORM_SECONDS", std::env::var("RT_STORM_SECONDS").as_deref().unwrap_or(STORM_SECONDS))
                .env_hidden("CARGO_TARGET_DIR", &target)
        };
        steps::tests(&["--package", "gort"], set)
            .map_err(|why| format!("{why}; RT_CHAOS_SEED={seed} cargo xtask chaos draws the same numbers again"))?;
    }
    Ok(format!("runtime's tests with {rounds} seeds from {first}"))
}
