//! All that was measured, and what follows from it.

use crate::rivals::{Contender, Part};
use crate::workload::{Column, Target, Workload};
use std::collections::{BTreeMap, BTreeSet};

/// Who runs what with how many Ps.
pub type Key = (Workload, usize, Contender);

/// Results by child.
#[derive(Debug, Default)]
pub struct Results {
    /// The values of each round: one for each column of the workload, and for traced ones the bytes per operation.
    samples: BTreeMap<Key, Vec<Vec<f64>>>,
    /// Why one has failed.
    pub failures: BTreeMap<Key, String>,
    /// Why there is no Go.
    pub no_go: Option<String>,
    /// What else a reader must know.
    pub remarks: BTreeSet<String>,
}

impl Results {
    /// Adds what a child said.
    pub fn add(&mut self, key: Key, result: Result<Vec<f64>, String>) {
        match result {
            Ok(values) => self.samples.entry(key).or_default().push(values),
            Err(why) => _ = self.failures.insert(key, why),
        }
    }

    /// How often it was measured.
    pub fn rounds(&self, key: Key) -> usize {
        self.samples.get(&key).map_or(0, Vec::len)
    }

    /// The values of a column, sorted; none, or one at least.
    pub fn sorted(&self, key: Key, column: usize) -> Option<Vec<f64>> {
        let samples = self.samples.get(&key)?;
        let mut values: Vec<f64> = samples.iter().map(|values| values[column]).collect();
        values.sort_by(f64::total_cmp);
        Some(values)
    }

    /// The median of a column.
    pub fn median(&self, key: Key, column: usize) -> Option<f64> {
        self.sorted(key, column).map(|sorted| median(&sorted))
    }

    /// The bytes of trace per operation of a traced contender.
    pub fn trace_bytes(&self, key: Key) -> Option<f64> {
        self.median(key, key.0.spec().columns.len())
    }

    /// Of one contender by that of another.
    pub fn ratio(&self, workload: Workload, procs: usize, column: usize, of: Contender, by: Contender) -> Option<f64> {
        let median = |contender| self.median((workload, procs, contender), column);
        let by = median(by).filter(|&by| by != 0.0)?;
        Some(median(of)? / by)
    }

    /// The one with the least in a column.
    pub fn best(&self, workload: Workload, procs: usize, column: usize, among: &[Contender]) -> Option<Contender> {
        let there = among.iter().filter_map(|&one| Some((one, self.median((workload, procs, one), column)?)));
        there.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(one, _)| one)
    }

    /// Whether something else has kept the processors busy: one goroutine that never waits should have had one to itself.
    pub fn disturbed(&self) -> Option<String> {
        const ENOUGH: f64 = 0.9;
        let is_alone = |key: &&Key| match **key {
            (Workload::Yield1 | Workload::Mutex, ..) => true,
            // One thread, and always something to read.
            key => key == (Workload::Echo64, 1, Contender::Mio),
        };
        let alone = self.samples.keys().filter(is_alone);
        let busy = alone.filter_map(|&key| self.median(key, 1)).min_by(f64::total_cmp);
        busy.filter(|&busy| busy < ENOUGH).map(|busy| {
            format!("THE MACHINE WAS NOT IDLE: a loop that never waits had {:.0} % of a processor.", 100.0 * busy)
        })
    }

    /// Why somebody who would be expected to has no value, or not one from each round.
    pub fn why_not(&self, key: Key) -> Option<String> {
        if let Some(why) = self.failures.get(&key) {
            return Some(match self.rounds(key) {
                0 => format!("fails: {why}"),
                rounds => format!("fails in round {}: {why}", rounds + 1),
            });
        }
        match (key.2.part(key.0), &self.no_go) {
            (Part::Cannot(why), _) => Some(why.to_owned()),
            (Part::Takes, Some(why)) if key.2.is_go() => Some(format!("left out: {why}")),
            _ => None,
        }
    }

    /// What is wanted of gort in a column, and whether it is so.
    pub fn target(&self, workload: Workload, procs: usize, column: usize) -> Option<(String, Option<bool>)> {
        let ratio = |by| self.ratio(workload, procs, column, Contender::Gort, by);
        Some(match workload.spec().columns[column].target? {
            Target::OfGo(wanted) => (format!("{wanted:.2} of Go"), ratio(Contender::Go).map(|ratio| ratio <= wanted)),
            Target::Std => ("as std".into(), ratio(Contender::Std).map(|ratio| ratio <= TIE_MOST)),
            Target::AtMost(wanted) => {
                let ours = self.median((workload, procs, Contender::Gort), column);
                (format!("{wanted} at most"), ours.map(|ours| ours <= wanted))
            }
        })
    }
}

/// The columns of a workload that have a row in tables.
pub fn rows(workload: Workload) -> impl Iterator<Item = (usize, &'static Column)> {
    workload.spec().columns.iter().enumerate().filter(|(i, column)| *i == 0 || column.has_row)
}

const TIE_LEAST: f64 = 0.8;
const TIE_MOST: f64 = 1.25;

/// Whether a ratio tells nothing.
pub fn is_tie(ratio: f64) -> bool {
    (TIE_LEAST..=TIE_MOST).contains(&ratio)
}

/// Of sorted values, at least one.
pub fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 }
}

/// Three digits or so.
pub fn figure(value: f64) -> String {
    match value {
        0.0 => "0".into(),
        value if value < 10.0 => format!("{value:.2}"),
        value if value < 100.0 => format!("{value:.1}"),
        value => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results(ours: &[f64], go: f64) -> Results {
        let mut results = Results::default();
        for &ns in ours {
            results.add((Workload::PingPong, 1, Contender::Gort), Ok(vec![ns, 1.0]));
        }
        results.add((Workload::PingPong, 1, Contender::Go), Ok(vec![go, 1.0]));
        results
    }

    #[test]
    fn medians() {
        assert_eq!(results(&[3.0, 1.0, 2.0], 1.0).median((Workload::PingPong, 1, Contender::Gort), 0), Some(2.0));
        assert_eq!(median(&[1.0, 2.0, 3.0, 4.0]), 2.5);
        assert_eq!(median(&[7.0]), 7.0);
    }

    #[test]
    fn targets_are_met_or_not() {
        let reached = |results: Results| results.target(Workload::PingPong, 1, 0).and_then(|target| target.1);
        assert_eq!(reached(results(&[34.0], 100.0)), Some(true));
        assert_eq!(reached(results(&[36.0], 100.0)), Some(false));
        assert_eq!(reached(Results::default()), None, "nothing was measured");
        assert_eq!(results(&[1.0], 1.0).target(Workload::PingPong, 1, 1), None, "the column has none");
    }

    #[test]
    fn the_best_is_among_those_with_values() {
        let best = |among: &[Contender]| results(&[2.0], 1.0).best(Workload::PingPong, 1, 0, among);
        assert_eq!(best(&[Contender::May, Contender::Go, Contender::Gort]), Some(Contender::Go));
        assert_eq!(best(&[Contender::May]), None);
    }

    #[test]
    fn a_busy_machine_shows() {
        let loops = |cores| {
            let mut results = Results::default();
            results.add((Workload::Mutex, 1, Contender::Std), Ok(vec![6.0, cores]));
            results.disturbed()
        };
        assert!(loops(0.5).is_some_and(|warning| warning.contains("50 %")));
        assert_eq!(loops(0.99), None);
    }

    #[test]
    fn says_why_something_is_missing() {
        let (fails, cannot) = ((Workload::Skynet, 1, Contender::May), (Workload::Memory64K, 2, Contender::Tokio));
        let mut results = Results::default();
        results.add(fails, Err("no stack".into()));
        assert_eq!(results.why_not(fails).as_deref(), Some("fails: no stack"));
        assert!(results.why_not(cannot).is_some());
        assert_eq!(results.why_not((Workload::Skynet, 2, Contender::May)), None);
    }

    #[test]
    fn figures() {
        assert_eq!([0.0, 6.144, 61.44, 1234.5].map(figure), ["0", "6.14", "61.4", "1234"]);
    }
}
