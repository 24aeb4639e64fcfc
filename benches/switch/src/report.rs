//! What the bench prints: medians with their range, and ratios of medians.

use crate::ALLOCATOR_NAME;
use crate::options::Options;
use crate::rivals::Contender;
use crate::rivals::golang::Golang;
use crate::rounds::Key;
use crate::workload::Workload;
use std::collections::BTreeMap;

/// What one child measured, per operation.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// Nanoseconds.
    pub ns: f64,
    /// Bytes of trace.
    pub bytes: f64,
}

/// All that was measured.
pub type Samples = BTreeMap<Key, Vec<Sample>>;

/// What is compared with what.
pub fn head(options: &Options, go: Option<&Result<Golang, String>>) {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    println!("goroutines: ns per operation, median of {} rounds (least .. most)", options.rounds);
    println!("{cores} cores; allocator of gort, may and tokio: {ALLOCATOR_NAME}; seed {}", options.seed);
    match go {
        Some(Ok(go)) => println!("Go: {}", go.version),
        Some(Err(why)) => println!("Go is LEFT OUT: {why}"),
        None => println!("Go is left out: not asked for"),
    }
}

/// A block for each workload and number of Ps, and a table of ratios.
pub fn body(options: &Options, samples: &Samples, failures: &BTreeMap<Key, String>) {
    for &workload in &options.workloads {
        for &procs in &options.procs {
            block(workload, procs, samples, failures);
        }
    }
    if options.contenders.contains(&Contender::Gort) {
        table(options, samples);
    }
}

fn block(workload: Workload, procs: usize, samples: &Samples, failures: &BTreeMap<Key, String>) {
    println!("\n{workload}, P={procs}");
    let ours = median_ns(samples.get(&(workload, procs, Contender::Gort)));
    for contender in Contender::ALL {
        let key = (workload, procs, contender);
        if let Some(why) = failures.get(&key) {
            println!("  {:<10} FAILED: {why}", contender.word());
        }
        let Some(measured) = samples.get(&key) else { continue };
        let ns = sorted(measured.iter().map(|sample| sample.ns));
        let range = format!("({} .. {})", figure(ns[0]), figure(ns[ns.len() - 1]));
        let against = match (ours, contender) {
            (None, _) | (_, Contender::Gort) => String::new(),
            (Some(ours), traced) if traced.is_traced() => {
                let bytes = sorted(measured.iter().map(|sample| sample.bytes));
                format!("{:.2} x untraced, {:.1} bytes", median(&ns) / ours, median(&bytes))
            }
            (Some(ours), _) => format!("gort / {} = {:.2}", contender.word(), ours / median(&ns)),
        };
        let line = format!("  {:<10} {:>8}  {range:<22} {against}", contender.word(), figure(median(&ns)));
        println!("{}", line.trim_end());
    }
}

fn table(options: &Options, samples: &Samples) {
    const RIVALS: [Contender; 3] = [Contender::May, Contender::Tokio, Contender::Go];
    const TRACED: [Contender; 2] = [Contender::GortSink, Contender::GortFile];
    println!("\nratios of medians: gort / rival (under 1: gort is faster), traced / untraced");
    print!("{:<32} {:>3} {:>9}", "", "P", "gort ns");
    RIVALS.iter().chain(&TRACED).for_each(|contender| print!(" {:>9}", contender.word()));
    println!();
    for &workload in &options.workloads {
        for &procs in &options.procs {
            let of = |contender: Contender| median_ns(samples.get(&(workload, procs, contender)));
            let ours = of(Contender::Gort);
            print!("{workload:<32} {procs:>3} {:>9}", ours.map_or("-".into(), figure));
            let ratio = |above: Option<f64>, below: Option<f64>| match (above, below) {
                (Some(above), Some(below)) => format!("{:.2}", above / below),
                _ => "-".into(),
            };
            RIVALS.iter().for_each(|&rival| print!(" {:>9}", ratio(ours, of(rival))));
            TRACED.iter().for_each(|&traced| print!(" {:>9}", ratio(of(traced), ours)));
            println!();
        }
    }
}

fn median_ns(samples: Option<&Vec<Sample>>) -> Option<f64> {
    samples.map(|samples| median(&sorted(samples.iter().map(|sample| sample.ns))))
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

/// Of sorted values, at least one.
fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 }
}

/// Three digits or so.
fn figure(ns: f64) -> String {
    if ns < 100.0 { format!("{ns:.1}") } else { format!("{ns:.0}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(&sorted([3.0, 1.0, 2.0].into_iter())), 2.0);
        assert_eq!(median(&sorted([4.0, 1.0, 2.0, 3.0].into_iter())), 2.5);
        assert_eq!(median(&[7.0]), 7.0);
    }

    #[test]
    fn figures() {
        assert_eq!(figure(6.14), "6.1");
        assert_eq!(figure(1234.5), "1234");
    }
}
