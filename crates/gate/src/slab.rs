//! Storage of requests, found by ticket in one step, without hashing.
//!
//! Slots are reused; tickets are not, so a late caller never finds another request. Memory is freed from the end,
//! when the last slots are empty.

/// Identifies one request for the life of the gate; never reused. Sorts by arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket {
    number: u64,
    slot: u32,
}

/// Capacity that is kept even if unused.
const SMALL: usize = 64;

#[derive(Debug)]
pub(crate) struct Slab<T> {
    slots: Vec<Option<(u64, T)>>,
    /// Slots that were emptied. An entry may be in use again or gone; that is checked when it is taken.
    free: Vec<u32>,
    next_number: u64,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new(), next_number: 0 }
    }
}

impl<T> Slab<T> {
    pub fn insert(&mut self, value: T) -> Ticket {
        let number = self.next_number;
        self.next_number += 1;
        while let Some(slot) = self.free.pop() {
            if let Some(empty @ None) = self.slots.get_mut(slot as usize) {
                *empty = Some((number, value));
                return Ticket { number, slot };
            }
        }
        let slot =
            u32::try_from(self.slots.len()).expect("fewer than four thousand million requests at once");
        self.slots.push(Some((number, value)));
        Ticket { number, slot }
    }

    pub fn get(&self, ticket: Ticket) -> Option<&T> {
        match self.slots.get(ticket.slot as usize) {
            Some(Some((number, value))) if *number == ticket.number => Some(value),
            _ => None,
        }
    }

    pub fn get_mut(&mut self, ticket: Ticket) -> Option<&mut T> {
        match self.slots.get_mut(ticket.slot as usize) {
            Some(Some((number, value))) if *number == ticket.number => Some(value),
            _ => None,
        }
    }

    pub fn remove(&mut self, ticket: Ticket) -> Option<T> {
        self.get(ticket)?;
        let (_, value) = self.slots.get_mut(ticket.slot as usize)?.take()?;
        self.free.push(ticket.slot);
        if ticket.slot as usize + 1 == self.slots.len() && self.slots.len() > SMALL {
            self.give_back();
        }
        Some(value)
    }

    pub fn iter(&self) -> impl Iterator<Item = (Ticket, &T)> + '_ {
        self.slots.iter().zip(0u32..).filter_map(|(entry, slot)| {
            let (number, value) = entry.as_ref()?;
            Some((Ticket { number: *number, slot }, value))
        })
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Ticket, &mut T)> + '_ {
        self.slots.iter_mut().zip(0u32..).filter_map(|(entry, slot)| {
            let (number, value) = entry.as_mut()?;
            Some((Ticket { number: *number, slot }, value))
        })
    }

    #[cfg(test)]
    pub fn capacity(&self) -> usize {
        self.slots.capacity() + self.free.capacity()
    }

    /// Drops the empty slots at the end.
    fn give_back(&mut self) {
        while matches!(self.slots.last(), Some(None)) {
            self.slots.pop();
        }
        let capacity = self.slots.capacity();
        if capacity > SMALL && self.slots.len() < capacity / 8 {
            let length = self.slots.len();
            self.slots.shrink_to(2 * length + SMALL);
            self.free.retain(|slot| (*slot as usize) < length);
            self.free.shrink_to(2 * length + SMALL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_ticket_does_not_meet_the_next_request() {
        let mut slab = Slab::default();
        let first = slab.insert("first");
        assert_eq!(slab.remove(first), Some("first"));
        let second = slab.insert("second");
        assert_eq!(second.slot, first.slot, "the slot is used again");
        assert_eq!(slab.get(first), None);
        assert_eq!(slab.remove(first), None);
        assert_eq!(slab.get(second), Some(&"second"));
        assert!(first < second);
    }

    #[test]
    fn memory_returns_whatever_the_order() {
        for stride in [1, 7, 9_973] {
            let mut slab = Slab::default();
            let tickets: Vec<Ticket> = (0..10_000).map(|value| slab.insert(value)).collect();
            for step in 0..10_000 {
                let index = step * stride % 10_000;
                assert_eq!(slab.remove(tickets[index]), Some(index), "stride {stride}");
            }
            assert!(slab.slots.capacity() <= 512, "stride {stride}: {} slots kept", slab.slots.capacity());
            assert!(slab.free.capacity() <= 512, "stride {stride}: {} free kept", slab.free.capacity());
            let again: Vec<Ticket> = (0..1_000).map(|value| slab.insert(value)).collect();
            assert_eq!(slab.iter().map(|(ticket, _)| ticket).collect::<Vec<_>>().len(), 1_000);
            assert!(again.iter().enumerate().all(|(value, ticket)| slab.get(*ticket) == Some(&value)));
        }
    }
}
