//! What the program says itself: tasks, regions, messages.
//!
//! Memory: the tasks that are open, the slowest of each name, and the places at which regions begin.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::elapsed;
use super::goroutine::{Context, Spent};
use super::histogram::Histogram;
use super::intern::{NameId, StackId, Stacks};
use super::stack::Frame;
use crate::read::hash::Seed;
use crate::read::{Event, Tables};
use crate::wire::Ev;

/// How many of the slowest tasks of a name are kept.
const SLOWEST_MAX: usize = 10;
/// How many messages and goroutines of a task are kept.
const LOGS_MAX: usize = 32;
const GOROUTINES_MAX: usize = 1_000;

/// The id of no task.
const BACKGROUND: u64 = 0;

/// A message in a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// When, in ns on the trace's clock.
    pub time: i64,
    /// On which goroutine.
    pub g: i64,
    /// Its category.
    pub key: Box<str>,
    /// What it says.
    pub value: Box<str>,
}

/// One task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Task {
    /// Its id.
    pub id: u64,
    /// Its name; empty if it began before the trace.
    pub name: Arc<str>,
    /// The task that it is a part of; 0 is none.
    pub parent: u64,
    /// When it began, in ns on the trace's clock; `None` if that was before the trace.
    pub begin: Option<i64>,
    /// How long it took, or how much of it is in the trace, in ns.
    pub ns: u64,
    /// It had not ended when the trace did.
    pub open: bool,
    /// How many tasks are a part of it.
    pub children: u64,
    /// The goroutines that it was begun, ended or logged on, or had a region on: the first thousand, by id.
    pub goroutines: BTreeSet<i64>,
    /// How many regions belong to it.
    pub regions: u64,
    /// How the time in its regions was spent, by all goroutines together. Regions in regions count once.
    pub spent: Spent,
    /// How many messages belong to it.
    pub logged: u64,
    /// The first of them.
    pub logs: Vec<Log>,
}

/// The tasks of one name.
#[derive(Clone, Debug, Default)]
pub struct TaskGroup {
    /// The name; empty for those that began before the trace.
    pub name: Arc<str>,
    /// How long they took, in ns; those that are open at the trace's end count so far.
    pub latency: Histogram,
    /// All their regions.
    pub regions: u64,
    /// How the time in their regions was spent.
    pub spent: Spent,
    /// All their messages.
    pub logged: u64,
    /// The slowest, the slowest first.
    pub slowest: Vec<Task>,
}

/// The regions of one name that begin at one place.
#[derive(Clone, Debug, Default)]
pub struct RegionGroup {
    /// The name.
    pub name: Arc<str>,
    /// Where they begin, if the trace has stacks.
    pub site: Option<Frame>,
    /// How long they took, in ns; those that are open at the trace's end count so far.
    pub latency: Histogram,
    /// How the time in them was spent.
    pub spent: Spent,
    /// How many of them began before the trace; they count nowhere else.
    pub began_before: u64,
}

/// A region that has not ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenRegion {
    pub task: u64,
    begin: i64,
    group: u32,
    spent: [u64; 4],
}

/// Tasks and regions at one moment, and in the end.
#[derive(Clone, Debug, Default)]
pub struct Users {
    /// By name, the longest in total first.
    pub tasks: Vec<TaskGroup>,
    /// By name and place, the longest in total first.
    pub regions: Vec<RegionGroup>,
    /// Messages that belong to no task.
    pub logged_outside: u64,
    live: HashMap<u64, Task, Seed>,
    task_index: HashMap<Arc<str>, usize>,
    region_index: HashMap<(NameId, Option<u32>), u32, Seed>,
}

impl Users {
    /// Takes the begin or end of a task, or a message.
    pub(super) fn event(&mut self, event: &Event, start: i64, stacks: &mut Stacks, tables: &Tables) {
        let [id, second, third, _] = event.args;
        match event.kind {
            Ev::UserTaskBegin => {
                let name = stacks.string(third, tables);
                let task = self.task(id);
                task.name = stacks.text(name).clone();
                task.begin = Some(event.time);
                task.parent = second;
                task.on(event.g);
                if let Some(parent) = self.live.get_mut(&second) {
                    parent.children += 1;
                }
            }
            Ev::UserTaskEnd => {
                self.task(id).on(event.g);
                if let Some(task) = self.live.remove(&id) {
                    self.task_ends(task, start, event.time, false);
                }
            }
            Ev::UserLog => {
                let text = |id| tables.string(id).unwrap_or_default().into();
                match self.live.get_mut(&id) {
                    Some(task) => {
                        task.on(event.g);
                        task.logged += 1;
                        if task.logs.len() < LOGS_MAX {
                            let (key, value) = (text(second), text(third));
                            task.logs.push(Log { time: event.time, g: event.g, key, value });
                        }
                    }
                    None => self.logged_outside += 1,
                }
            }
            _ => {}
        }
    }

    fn task(&mut self, id: u64) -> &mut Task {
        self.live.entry(id).or_insert_with(|| Task { id, ..Task::default() })
    }

    fn task_ends(&mut self, mut task: Task, start: i64, now: i64, open: bool) {
        task.ns = elapsed(task.begin.unwrap_or(start), now);
        task.open = open;
        let at = *self.task_index.entry(task.name.clone()).or_insert_with(|| {
            self.tasks.push(TaskGroup { name: task.name.clone(), ..TaskGroup::default() });
            self.tasks.len() - 1
        });
        let group = &mut self.tasks[at];
        group.latency.add_as(task.ns, open);
        group.regions += task.regions;
        group.logged += task.logged;
        group.spent.merge(&task.spent);
        if group.slowest.len() < SLOWEST_MAX || group.slowest[SLOWEST_MAX - 1].ns < task.ns {
            let at = group.slowest.partition_point(|other| other.ns >= task.ns);
            group.slowest.insert(at, task);
            group.slowest.truncate(SLOWEST_MAX);
        }
    }

    fn region_group(&mut self, name: NameId, stack: StackId, stacks: &Stacks) -> u32 {
        let key = (name, stacks.site_frame(stack));
        *self.region_index.entry(key).or_insert_with(|| {
            let (name, site) = (stacks.text(name).clone(), stacks.site(stack));
            self.regions.push(RegionGroup { name, site, ..RegionGroup::default() });
            self.regions.len() as u32 - 1
        })
    }

    /// A region begins on a goroutine that has spent its time so.
    pub(super) fn region_begins(
        &mut self,
        event: &Event,
        spent: [u64; 4],
        stacks: &mut Stacks,
        tables: &Tables,
    ) -> OpenRegion {
        let (task, name, stack) =
            (event.args[0], stacks.string(event.args[1], tables), stacks.stack(event.stack(), tables));
        if let Some(task) = self.live.get_mut(&task) {
            task.regions += 1;
            task.on(event.g);
        }
        OpenRegion { task, begin: event.time, group: self.region_group(name, stack, stacks), spent }
    }

    /// A region ends, on a goroutine that has spent its time so: because the trace does, or inside another of the same
    /// task, or neither.
    pub(super) fn region_ends(&mut self, region: &OpenRegion, now: i64, spent: [u64; 4], (open, inside): (bool, bool)) {
        let group = &mut self.regions[region.group as usize];
        group.latency.add_as(elapsed(region.begin, now), open);
        let mut here = spent;
        here.iter_mut().zip(region.spent).for_each(|(after, before)| *after = after.saturating_sub(before));
        group.spent.add(here);
        if !inside
            && region.task != BACKGROUND
            && let Some(task) = self.live.get_mut(&region.task)
        {
            task.spent.add(here);
        }
    }

    /// A region ends whose begin is not in the trace.
    pub(super) fn region_began_before(&mut self, event: &Event, context: &mut Context<'_>) {
        let name = context.stacks.string(event.args[1], context.tables);
        let group = self.region_group(name, StackId::EMPTY, context.stacks);
        self.regions[group as usize].began_before += 1;
    }

    /// Closes the tasks that are open. Comes after the regions that are.
    pub(super) fn close(&mut self, start: i64, end: i64) {
        let mut live: Vec<Task> = std::mem::take(&mut self.live).into_values().collect();
        live.sort_by_key(|task| task.id);
        for task in live {
            self.task_ends(task, start, end, true);
        }
    }

    /// Closes what is open, and sorts.
    pub(super) fn finish(&mut self, start: i64, end: i64) {
        self.close(start, end);
        let total = |latency: &Histogram| std::cmp::Reverse(latency.total());
        self.tasks.sort_by(|a, b| (total(&a.latency), &a.name).cmp(&(total(&b.latency), &b.name)));
        self.regions.sort_by(|a, b| {
            let line = |group: &RegionGroup| group.site.as_ref().map(|site| (site.file.clone(), site.line));
            (total(&a.latency), &a.name, line(a)).cmp(&(total(&b.latency), &b.name, line(b)))
        });
    }
}

impl Task {
    fn on(&mut self, g: i64) {
        if self.goroutines.len() < GOROUTINES_MAX {
            self.goroutines.insert(g);
        }
    }
}
