//! A table of names that only grows, up to a limit. It bounds the labels.
//!
//! Looking up a known name takes no lock and writes nothing, so it costs the same on every thread: a hash, a load, a
//! comparison. A cached handle would cost the same, but could outlive the value that it points to.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// A name and its value, once they are set.
type Slot<T> = OnceLock<(Box<str>, T)>;

/// At most `limit` names, each with a value. Names are never removed.
#[derive(Debug)]
pub(crate) struct Names<T> {
    /// Open addressing, at most half full.
    slots: Box<[Slot<T>]>,
    /// The slot of the first name. Often it is the only name, and a comparison is cheaper than a hash.
    first: OnceLock<usize>,
    /// The slots in order of arrival. Locked while a name is added.
    order: Mutex<Vec<usize>>,
    limit: usize,
    full: AtomicBool,
}

impl<T> Names<T> {
    pub(crate) fn new(limit: usize) -> Self {
        let slots = (limit * 2).next_power_of_two().max(2);
        Self {
            slots: std::iter::repeat_with(OnceLock::new).take(slots).collect(),
            first: OnceLock::new(),
            order: Mutex::default(),
            limit,
            full: AtomicBool::new(limit == 0),
        }
    }

    /// Returns the value of a name. `make` gets the name's number, counted from 0. `None` means that the name is new
    /// and the limit is reached.
    #[inline]
    pub(crate) fn get_or_add(&self, name: &str, make: impl FnOnce(usize) -> T) -> Option<&T> {
        if let Some((known, value)) = self.first.get().and_then(|slot| self.slots[*slot].get())
            && **known == *name
        {
            return Some(value);
        }
        self.search_or_add(name, make)
    }

    #[inline(never)]
    fn search_or_add(&self, name: &str, make: impl FnOnce(usize) -> T) -> Option<&T> {
        match self.find(name) {
            Ok(value) => Some(value),
            Err(_) if self.full.load(Ordering::Relaxed) => None,
            Err(_) => self.add(name, make),
        }
    }

    /// Returns whether the limit is reached.
    pub(crate) fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    #[cold]
    fn add(&self, name: &str, make: impl FnOnce(usize) -> T) -> Option<&T> {
        let mut order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = match self.find(name) {
            Ok(value) => return Some(value),
            Err(slot) => slot,
        };
        if order.len() >= self.limit {
            return None;
        }
        let (_, value) = self.slots[slot].get_or_init(|| (name.into(), make(order.len())));
        order.push(slot);
        self.first.get_or_init(|| slot);
        self.full.store(order.len() >= self.limit, Ordering::Relaxed);
        Some(value)
    }

    /// Returns the value of a name that was added.
    pub(crate) fn find_known(&self, name: &str) -> Option<&T> {
        self.find(name).ok()
    }

    /// Finds the value of a name, or the slot for it.
    fn find(&self, name: &str) -> Result<&T, usize> {
        let mask = self.slots.len() - 1;
        let mut slot = hash(name.as_bytes()) & mask;
        loop {
            match self.slots[slot].get() {
                Some((known, value)) if **known == *name => return Ok(value),
                Some(_) => slot = (slot + 1) & mask,
                None => return Err(slot),
            }
        }
    }

    /// Returns the name with this number, with its value.
    pub(crate) fn nth(&self, number: usize) -> Option<(&str, &T)> {
        let slot = *self.order.lock().unwrap_or_else(PoisonError::into_inner).get(number)?;
        self.slots[slot].get().map(|(name, value)| (&**name, value))
    }

    /// Returns every name with its value, by number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        let order = self.order.lock().unwrap_or_else(PoisonError::into_inner).clone();
        order.into_iter().filter_map(|slot| self.slots[slot].get()).map(|(name, value)| (&**name, value))
    }
}

/// Mixes sixteen bytes at a time. The tables are bounded, so an attacker gains nothing from a collision.
#[expect(clippy::cast_possible_truncation, reason = "halves of products are what a hash is made of")]
fn hash(name: &[u8]) -> usize {
    let mut state = name.len() as u64;
    let mut mix = |block: &[u8; 16]| {
        let block = u128::from_le_bytes(*block);
        let (low, high) = (block as u64, (block >> 64) as u64);
        let product = u128::from(low ^ state ^ 0x9E37_79B9_7F4A_7C15) * u128::from(high ^ 0xD6E8_FEB8_6659_FD93);
        state = product as u64 ^ (product >> 64) as u64;
    };
    if let Some(last) = name.last_chunk() {
        // If the length is not a multiple of sixteen, the last sixteen bytes are mixed again. This is cheaper than
        // copying the rest.
        name.as_chunks().0.iter().for_each(&mut mix);
        mix(last);
    } else {
        let mut padded = [0; 16];
        padded[..name.len()].copy_from_slice(name);
        mix(&padded);
    }
    state as usize
}

#[cfg(test)]
mod tests {
    use super::Names;

    #[test]
    fn keeps_what_came_first_and_refuses_the_rest() {
        let names = Names::new(3);
        for (number, name) in ["a", "", "lock:user:<user_id>"].into_iter().enumerate() {
            assert_eq!(names.get_or_add(name, |number| number), Some(&number));
        }
        assert_eq!(names.get_or_add("d", |number| number), None);
        assert_eq!(names.get_or_add("", |_| unreachable!()), Some(&1));
        assert_eq!(names.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["a", "", "lock:user:<user_id>"]);
    }

    #[test]
    fn threads_agree_on_numbers() {
        let names = Names::new(64);
        let all: Vec<String> = (0..100).map(|number| format!("lock-{number}")).collect();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for name in &all {
                        names.get_or_add(name, |number| number);
                    }
                });
            }
        });
        let numbers: Vec<usize> = names.iter().map(|(_, number)| *number).collect();
        assert_eq!(numbers, (0..64).collect::<Vec<_>>());
    }
}
