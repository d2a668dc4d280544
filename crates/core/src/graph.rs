//! Blocker edges and the hierarchy: cycles are detected, and named, before they are written.

use std::collections::{BTreeMap, BTreeSet};

use crate::id::TaskId;
use crate::limits;
use crate::refusal::Refusal;

/// Maps each task to its blockers.
pub type Edges = BTreeMap<TaskId, Vec<TaskId>>;

/// A cycle, if there is one: each task is blocked by the next, and the first and last are the same. Of several, the
/// one found from the least id, so that every host reports the same.
pub fn find_cycle(edges: &Edges) -> Option<Vec<TaskId>> {
    let mut finished: BTreeSet<&TaskId> = BTreeSet::new();
    for start in edges.keys() {
        if let Some(cycle) = cycle_from(start, edges, &mut finished) {
            return Some(cycle);
        }
    }
    None
}

/// Depth-first without recursion: a chain of 10,000 must not overflow the stack.
fn cycle_from<'a>(
    start: &'a TaskId,
    edges: &'a Edges,
    finished: &mut BTreeSet<&'a TaskId>,
) -> Option<Vec<TaskId>> {
    if finished.contains(start) {
        return None;
    }
    let mut path: Vec<(&TaskId, usize)> = vec![(start, 0)];
    let mut on_path: BTreeSet<&TaskId> = BTreeSet::from([start]);
    while let Some((task, next)) = path.last_mut() {
        let blocker = edges.get(*task).and_then(|blockers| blockers.get(*next));
        *next += 1;
        let Some(blocker) = blocker else {
            on_path.remove(*task);
            finished.insert(task);
            path.pop();
            continue;
        };
        if on_path.contains(blocker) {
            let from = path.iter().position(|(task, _)| *task == blocker)?;
            let circle = path[from..].iter().map(|(task, _)| (*task).clone());
            return Some(circle.chain([blocker.clone()]).collect());
        }
        if !finished.contains(blocker) {
            on_path.insert(blocker);
            path.push((blocker, 0));
        }
    }
    None
}

/// The level of a child, assigned when it is created.
pub fn child_depth(id: &TaskId, parent_depth: u32) -> Result<u32, Refusal> {
    let depth = parent_depth.saturating_add(1);
    if depth > limits::DEPTH { Err(Refusal::TooDeep { id: id.clone(), depth }) } else { Ok(depth) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn id(text: impl ToString) -> TaskId {
        TaskId::from_stored(text.to_string().into())
    }

    fn edges(list: &[(&str, &[&str])]) -> Edges {
        list.iter().map(|(task, blockers)| (id(task), blockers.iter().map(id).collect())).collect()
    }

    #[test]
    fn circles_are_named() {
        for (list, wanted) in [
            (edges(&[("a", &["b"]), ("b", &["c"])]), None),
            (edges(&[("a", &["a"])]), Some(vec!["a", "a"])),
            (edges(&[("a", &["b"]), ("b", &["a"])]), Some(vec!["a", "b", "a"])),
            (edges(&[("x", &["a"]), ("a", &["b", "c"]), ("c", &["a"])]), Some(vec!["a", "c", "a"])),
            (edges(&[("a", &["b", "c"]), ("b", &["d"]), ("c", &["d"])]), None),
        ] {
            let wanted = wanted.map(|path| path.into_iter().map(id).collect::<Vec<_>>());
            assert_eq!(find_cycle(&list), wanted);
        }
    }

    /// C6: long chains and wide fans end, and quickly.
    #[test]
    fn depth_10_000_and_10_000_blockers() {
        let name = |n: u32| id(format!("{n:05}"));
        let mut chain: Edges = (0..10_000).map(|n| (name(n), vec![name(n + 1)])).collect();
        assert_eq!(find_cycle(&chain), None);
        chain.insert(name(10_000), vec![name(0)]);
        assert_eq!(find_cycle(&chain).map(|path| path.len()), Some(10_002));
        let wide: Edges = [(id("a"), (0..10_000).map(name).collect())].into();
        assert_eq!(find_cycle(&wide), None);
    }

    #[test]
    fn the_hierarchy_has_a_bottom() {
        assert_eq!(child_depth(&id("c"), 0), Ok(1));
        assert_eq!(child_depth(&id("c"), 63), Ok(64));
        assert_eq!(child_depth(&id("c"), 64), Err(Refusal::TooDeep { id: id("c"), depth: 65 }));
        assert_eq!(child_depth(&id("c"), u32::MAX), Err(Refusal::TooDeep { id: id("c"), depth: u32::MAX }));
    }

    proptest! {
        /// C6: agrees with removing sources until nothing is left.
        #[test]
        fn agrees_with_peeling(list in proptest::collection::vec((0u8..12, 0u8..12), 0..40)) {
            let mut graph = Edges::new();
            for (task, blocker) in list {
                graph.entry(id(task)).or_default().push(id(blocker));
            }
            let mut left = graph.clone();
            loop {
                let free: Vec<TaskId> = left
                    .iter()
                    .filter(|(_, blockers)| blockers.iter().all(|blocker| !left.contains_key(blocker)))
                    .map(|(task, _)| task.clone())
                    .collect();
                if free.is_empty() {
                    break;
                }
                free.iter().for_each(|task| drop(left.remove(task)));
            }
            let found = find_cycle(&graph);
            prop_assert_eq!(found.is_some(), !left.is_empty());
            if let Some(path) = found {
                prop_assert_eq!(path.first(), path.last());
                for pair in path.windows(2) {
                    prop_assert!(graph[&pair[0]].contains(&pair[1]));
                }
            }
        }
    }
}
