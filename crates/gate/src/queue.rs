//! The order of waiters by their static keys, with positions.
//!
//! A waiter of level L is ordered as if it had arrived L spreads later, so its key never changes while it waits.
//! Within one level keys only grow, because time does; each level is therefore an append-only list, and the queue is
//! the merge of four lists. Joining and being served cost O(1) amortised; leaving from the middle and asking for a
//! position cost O(log n), by a Fenwick tree over each list. Empty places are removed when they outnumber the
//! waiters, so memory is proportional to the number of waiters.

use crate::priority::Priority;
use crate::slab::Ticket;

/// A waiter's place: its static key, ties broken by arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    /// Arrival plus level times spread, in microseconds.
    pub key: u64,
    /// Sorts by arrival at the gate.
    pub ticket: Ticket,
}

/// Empty places a list may have before it is compacted, beyond the number of its waiters.
const SPARE_PLACES: usize = 32;

/// The waiters of one model group.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    lines: [Line; 4],
}

impl Queue {
    pub fn push(&mut self, priority: Priority, place: Place) {
        self.line_mut(priority).push(place);
    }

    /// Removes a waiter from any place. False if it is not there.
    pub fn remove(&mut self, priority: Priority, ticket: Ticket) -> bool {
        self.line_mut(priority).remove(ticket)
    }

    /// Returns a waiter that was served to the front of its level.
    pub fn put_back(&mut self, priority: Priority, place: Place) {
        self.line_mut(priority).put_back(place);
    }

    /// The next waiter.
    pub fn first(&self) -> Option<(Priority, Place)> {
        Priority::ALL
            .into_iter()
            .filter_map(|priority| Some((priority, self.line(priority).first()?)))
            .min_by_key(|(_, place)| *place)
    }

    /// The number of waiters before `place`.
    pub fn ahead_of(&self, place: Place) -> usize {
        self.lines.iter().map(|line| line.ahead_of(place)).sum()
    }

    /// Every waiter's place, level by level.
    pub fn places(&self) -> impl Iterator<Item = Place> + '_ {
        self.lines.iter().flat_map(Line::places)
    }

    pub fn is_empty(&self) -> bool {
        self.lines.iter().all(|line| line.waiting == 0)
    }

    #[cfg(test)]
    pub fn capacity(&self) -> usize {
        self.lines.iter().map(|line| line.spots.capacity() + line.counts.capacity()).sum()
    }

    fn line(&self, priority: Priority) -> &Line {
        &self.lines[usize::from(priority.level())]
    }

    fn line_mut(&mut self, priority: Priority) -> &mut Line {
        &mut self.lines[usize::from(priority.level())]
    }
}

/// The waiters of one level, sorted because they are appended in order.
#[derive(Debug, Default)]
struct Line {
    spots: Vec<Spot>,
    /// Fenwick tree: 1 per place, 0 once its waiter left from behind the head. Places before the head keep their 1,
    /// so serving the head changes nothing.
    counts: Vec<u32>,
    /// The first waiter's index, or the length if nothing waits.
    head: usize,
    waiting: usize,
}

#[derive(Debug, Clone, Copy)]
struct Spot {
    place: Place,
    waiting: bool,
}

impl Line {
    fn push(&mut self, place: Place) {
        debug_assert!(self.spots.last().is_none_or(|last| last.place < place), "lines are appended in order");
        self.spots.push(Spot { place, waiting: true });
        self.append_count();
        self.waiting += 1;
    }

    fn remove(&mut self, ticket: Ticket) -> bool {
        let index = self.index_of(ticket);
        match self.spots.get_mut(index) {
            Some(spot) if spot.place.ticket == ticket && spot.waiting => spot.waiting = false,
            _ => return false,
        }
        self.waiting -= 1;
        if index == self.head {
            self.head += 1;
            while self.spots.get(self.head).is_some_and(|spot| !spot.waiting) {
                self.head += 1;
            }
        } else {
            self.uncount(index);
        }
        if self.spots.len() > 2 * self.waiting + SPARE_PLACES {
            self.sweep();
        }
        true
    }

    /// Returns a waiter that was served to the front. Costs O(n), but happens only to waiters that a block interrupts
    /// between their grant and their next poll.
    fn put_back(&mut self, place: Place) {
        debug_assert!(self.first().is_none_or(|first| place < first), "only the first can be put back");
        self.spots.drain(..self.head);
        self.spots.insert(0, Spot { place, waiting: true });
        self.head = 0;
        self.waiting += 1;
        self.recount();
    }

    /// The index of a waiter, if it is in the list. The head, the most frequent case, is found immediately.
    fn index_of(&self, ticket: Ticket) -> usize {
        let line = &self.spots[self.head..];
        match line.first() {
            Some(first) if first.place.ticket == ticket => self.head,
            _ => self.head + line.partition_point(|spot| spot.place.ticket < ticket),
        }
    }

    fn first(&self) -> Option<Place> {
        self.spots.get(self.head).map(|spot| spot.place)
    }

    fn ahead_of(&self, place: Place) -> usize {
        let end = self.spots.partition_point(|spot| spot.place < place);
        if end <= self.head { 0 } else { self.counted(end) - self.counted(self.head) }
    }

    fn places(&self) -> impl Iterator<Item = Place> + '_ {
        self.spots[self.head..].iter().filter(|spot| spot.waiting).map(|spot| spot.place)
    }

    /// Removes empty places, and frees memory if most of it is unused.
    fn sweep(&mut self) {
        self.spots.drain(..self.head);
        self.spots.retain(|spot| spot.waiting);
        self.head = 0;
        let room = 2 * self.spots.len() + SPARE_PLACES;
        if self.spots.capacity() > 2 * room {
            self.spots.shrink_to(room);
        }
        self.recount();
        if self.counts.capacity() > 2 * room {
            self.counts.shrink_to(room);
        }
    }

    /// Rebuilds the Fenwick tree.
    fn recount(&mut self) {
        self.counts.clear();
        for _ in 0..self.spots.len() {
            self.append_count();
        }
        for index in 0..self.spots.len() {
            if !self.spots[index].waiting {
                self.uncount(index);
            }
        }
    }

    /// Adds a 1 at the end of the Fenwick tree.
    fn append_count(&mut self) {
        let node = self.counts.len() + 1;
        let floor = node - lowest_bit(node);
        let mut sum = 1;
        let mut child = node - 1;
        while child > floor {
            sum += self.counts[child - 1];
            child -= lowest_bit(child);
        }
        self.counts.push(sum);
    }

    fn uncount(&mut self, index: usize) {
        let mut node = index + 1;
        while node <= self.counts.len() {
            self.counts[node - 1] -= 1;
            node += lowest_bit(node);
        }
    }

    /// The sum over the first `end` places.
    fn counted(&self, end: usize) -> usize {
        let mut node = end;
        let mut sum = 0;
        while node > 0 {
            sum += self.counts[node - 1] as usize;
            node -= lowest_bit(node);
        }
        sum
    }
}

const fn lowest_bit(number: usize) -> usize {
    number & number.wrapping_neg()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::slab::Slab;

    /// Tickets in order of arrival.
    fn tickets(count: usize) -> Vec<Ticket> {
        let mut slab = Slab::default();
        (0..count).map(|_| slab.insert(())).collect()
    }

    fn place(key: u64, ticket: Ticket) -> Place {
        Place { key, ticket }
    }

    #[test]
    fn serves_by_key_then_by_arrival() {
        let mut queue = Queue::default();
        let t = tickets(4);
        queue.push(Priority::Low, place(180, t[0]));
        queue.push(Priority::Normal, place(121, t[1]));
        queue.push(Priority::High, place(62, t[2]));
        queue.push(Priority::Normal, place(180, t[3]));
        let mut served = Vec::new();
        while let Some((priority, next)) = queue.first() {
            assert!(queue.remove(priority, next.ticket));
            served.push(next.ticket);
        }
        assert_eq!(served, [t[2], t[1], t[0], t[3]]);
        assert!(queue.is_empty());
    }

    #[test]
    fn removing_twice_or_a_stranger_changes_nothing() {
        let mut queue = Queue::default();
        let t = tickets(3);
        queue.push(Priority::Normal, place(1, t[0]));
        queue.push(Priority::Normal, place(2, t[1]));
        assert!(queue.remove(Priority::Normal, t[1]));
        assert!(!queue.remove(Priority::Normal, t[1]));
        assert!(!queue.remove(Priority::Normal, t[2]));
        assert!(!queue.remove(Priority::Low, t[0]));
        assert_eq!(queue.first(), Some((Priority::Normal, place(1, t[0]))));
    }

    #[test]
    fn memory_follows_the_number_waiting() {
        let mut line = Line::default();
        let t = tickets(100_000);
        for ticket in &t {
            line.push(place(0, *ticket));
        }
        // From the back, so that the head never moves past them.
        for ticket in t[3..].iter().rev() {
            assert!(line.remove(*ticket));
        }
        assert_eq!(line.places().count(), 3);
        assert!(line.spots.capacity() < 256, "{} spots kept", line.spots.capacity());
        assert!(line.counts.capacity() < 256, "{} counts kept", line.counts.capacity());
    }

    #[derive(Debug, Clone)]
    enum Step {
        Push(u8, u8),
        RemoveNth(usize),
        Serve,
        ServeAndPutBack,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => (0u8..4, 0u8..50).prop_map(|(level, pause)| Step::Push(level, pause)),
            2 => (0usize..200).prop_map(Step::RemoveNth),
            2 => Just(Step::Serve),
            1 => Just(Step::ServeAndPutBack),
        ];
        prop::collection::vec(step, 0..300)
    }

    proptest! {
        /// The queue and a sorted map agree on who is first and on every position.
        #[test]
        fn agrees_with_a_sorted_map(steps in steps()) {
            let mut queue = Queue::default();
            let mut model: BTreeMap<Place, Priority> = BTreeMap::new();
            let mut tickets = tickets(steps.len()).into_iter();
            let mut now = 0u64;
            for step in steps {
                match step {
                    Step::Push(level, pause) => {
                        now += u64::from(pause);
                        let place = place(now + u64::from(level) * 60, tickets.next().unwrap());
                        let priority = Priority::ALL[usize::from(level)];
                        queue.push(priority, place);
                        model.insert(place, priority);
                    }
                    Step::RemoveNth(nth) => {
                        let Some((&place, &priority)) = model.iter().nth(nth) else { continue };
                        model.remove(&place);
                        prop_assert!(queue.remove(priority, place.ticket));
                    }
                    Step::ServeAndPutBack => {
                        let Some((priority, place)) = queue.first() else { continue };
                        prop_assert!(queue.remove(priority, place.ticket));
                        queue.put_back(priority, place);
                    }
                    Step::Serve => {
                        let first = queue.first();
                        prop_assert_eq!(first, model.iter().next().map(|(place, level)| (*level, *place)));
                        let Some((priority, place)) = first else { continue };
                        model.remove(&place);
                        prop_assert!(queue.remove(priority, place.ticket));
                    }
                }
                prop_assert_eq!(queue.is_empty(), model.is_empty());
                for (ahead, place) in model.keys().enumerate() {
                    prop_assert_eq!(queue.ahead_of(*place), ahead);
                }
            }
        }
    }
}
