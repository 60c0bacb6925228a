//! The prefix cache: pages of prompts and texts, found by the tokens that they begin with.
//!
//! A tree. A node is a page with the tokens in it and who wrote each; its children continue it, so only whole
//! pages have any. Tokens are compared themselves, never a hash of them; a token is another one than the same
//! token that others wrote ([`Writer`]), because keys and values differ. No node begins with what is in a sibling, so
//! what a prompt has most in common with is beside it in the order of the siblings.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included, Unbounded};

use crate::engine::{Cut, Writer};

/// A token in the cache, and who wrote it ([`Cut::writer`]).
type Written = (u32, Writer);

/// Pages `P` by what is in them, at the same place of a text.
type Siblings<P> = BTreeMap<Vec<Written>, Node<P>>;

/// A page.
#[derive(Debug)]
struct Node<P> {
    page: P,
    /// When it was stored or found last.
    used: u64,
    next: Siblings<P>,
}

/// Pages by the tokens from the start of a text.
#[derive(Debug)]
pub struct Prefixes<P> {
    /// Positions of a page.
    positions: usize,
    first: Siblings<P>,
    /// Uses so far.
    clock: u64,
    /// Pages stored so far.
    stored: u64,
    len: usize,
}

impl<P> Prefixes<P> {
    /// No page so far, of `positions` positions each.
    pub fn new(positions: usize) -> Self {
        Self { positions: positions.max(1), first: Siblings::new(), clock: 0, stored: 0, len: 0 }
    }

    /// Pages.
    pub fn len(&self) -> usize {
        self.len
    }

    /// A number that grows when a page is stored.
    pub fn stored(&self) -> u64 {
        self.stored
    }

    /// The pages with the most tokens that a prompt may take which begins with `tokens` and is divided like
    /// `cut`, and how many these are: their keys and values are those that it would write itself, and the
    /// next token begins a chunk or is a column. Of the last page a part may be common, of `least` tokens or
    /// more.
    pub fn longest(&mut self, tokens: &[u32], cut: &Cut, least: usize) -> (Vec<&P>, usize) {
        self.clock += 1;
        let wanted = written(tokens, cut);
        let (mut at, mut pages, mut len) = (&mut self.first, Vec::new(), 0);
        while let Some((key, common)) = nearest(at, first_page(&wanted[len..], self.positions)) {
            let whole = common == self.positions;
            // The rest of a chunk would be another one.
            let common = cut.boundary(len + common).saturating_sub(len);
            if common == 0 || !whole && common < least {
                break;
            }
            let Some(Node { page, used, next }) = at.get_mut(&key) else { break };
            *used = self.clock;
            pages.push(&*page);
            len += common;
            if !whole {
                break;
            }
            at = next;
        }
        (pages, len)
    }

    /// Stores the pages of a text that begins with `tokens` and whose prompt was divided like `cut`, all but
    /// the last whole; `page` gives the page of a number. Those that are not needed beside them go to
    /// `given_up`.
    ///
    /// # Errors
    /// The errors of `page`; the pages before are stored.
    pub fn store<E>(
        &mut self,
        tokens: &[u32],
        cut: &Cut,
        mut page: impl FnMut(usize) -> Result<P, E>,
        given_up: &mut Vec<P>,
    ) -> Result<(), E> {
        self.clock += 1;
        let mut at = &mut self.first;
        for (number, own) in written(tokens, cut).chunks(self.positions).enumerate() {
            let after = at.range_mut::<[Written], _>((Included(own), Unbounded)).next();
            let there = after.filter(|(key, _)| key.starts_with(own)).map(|(key, node)| {
                node.used = self.clock;
                key.clone()
            });
            let key = match there {
                Some(key) => key,
                None => {
                    let page = page(number)?;
                    let before = at.range::<[Written], _>((Unbounded, Excluded(own))).next_back();
                    let begins = before.filter(|(key, _)| own.starts_with(key)).map(|(key, _)| key.clone());
                    if let Some(node) = begins.and_then(|key| at.remove(&key)) {
                        given_up.push(node.page);
                        self.len -= 1;
                    }
                    at.insert(own.to_vec(), Node { page, used: self.clock, next: Siblings::new() });
                    self.len += 1;
                    self.stored += 1;
                    own.to_vec()
                }
            };
            let Some(node) = at.get_mut(&key) else { break };
            at = &mut node.next;
        }
        Ok(())
    }

    /// Pages for which `which` holds.
    pub fn count(&self, which: impl Fn(&P) -> bool) -> usize {
        count(&self.first, &which)
    }

    /// Takes the page that was not used for the longest time, and that no other follows; one for which
    /// `first` holds, if there is any.
    pub fn take_oldest(&mut self, first: impl Fn(&P) -> bool) -> Option<P> {
        let used = oldest(&self.first, &first).or_else(|| oldest(&self.first, &|_| true))?;
        let page = take(&mut self.first, used)?;
        self.len -= 1;
        Some(page)
    }
}

/// The first tokens of a text, and who writes each.
fn written(tokens: &[u32], cut: &Cut) -> Vec<Written> {
    tokens.iter().enumerate().map(|(position, token)| (*token, cut.writer(position))).collect()
}

/// As many of `tokens` as a page has positions.
fn first_page(tokens: &[Written], positions: usize) -> &[Written] {
    &tokens[..tokens.len().min(positions)]
}

/// The sibling that has the most tokens in common with `tokens`, and their number; `None` if that is none.
fn nearest<P>(siblings: &Siblings<P>, tokens: &[Written]) -> Option<(Vec<Written>, usize)> {
    let before = siblings.range::<[Written], _>((Unbounded, Included(tokens))).next_back();
    let after = siblings.range::<[Written], _>((Excluded(tokens), Unbounded)).next();
    let common = |key: &[Written]| key.iter().zip(tokens).take_while(|(a, b)| a == b).count();
    let both = [before, after].into_iter().flatten().map(|(key, _)| (key, common(key)));
    let (key, common) = both.filter(|(_, common)| *common > 0).max_by_key(|(_, common)| *common)?;
    Some((key.clone(), common))
}

fn count<P>(siblings: &Siblings<P>, which: &dyn Fn(&P) -> bool) -> usize {
    siblings.values().map(|node| usize::from(which(&node.page)) + count(&node.next, which)).sum()
}

/// When the page was used that no other follows, for which `may` holds, and that was not used for the longest
/// time. No two such pages are used at the same time.
fn oldest<P>(siblings: &Siblings<P>, may: &dyn Fn(&P) -> bool) -> Option<u64> {
    let of = |node: &Node<P>| match node.next.is_empty() {
        true => may(&node.page).then_some(node.used),
        false => oldest(&node.next, may),
    };
    siblings.values().filter_map(of).min()
}

/// Takes the page that no other follows and that was used at `used`.
fn take<P>(siblings: &mut Siblings<P>, used: u64) -> Option<P> {
    let key = siblings.iter().find(|(_, node)| node.next.is_empty() && node.used == used);
    if let Some(key) = key.map(|(key, _)| key.clone()) {
        return siblings.remove(&key).map(|node| node.page);
    }
    // A page is used when one that follows it is.
    siblings.values_mut().filter(|node| node.used >= used).find_map(|node| take(&mut node.next, used))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use proptest::prelude::*;

    use super::*;

    /// Stores a text of columns in pages that are called by their tokens from the start.
    fn store(prefixes: &mut Prefixes<Vec<u32>>, tokens: &[u32]) -> Vec<Vec<u32>> {
        store_cut(prefixes, tokens, &Cut::NONE)
    }

    /// As [`store`], of a prompt in chunks.
    fn store_cut(prefixes: &mut Prefixes<Vec<u32>>, tokens: &[u32], cut: &Cut) -> Vec<Vec<u32>> {
        let (positions, mut given_up) = (prefixes.positions, Vec::new());
        let page = |number: usize| Ok(tokens[..tokens.len().min((number + 1) * positions)].to_vec());
        let stored: Result<(), Infallible> = prefixes.store(tokens, cut, page, &mut given_up);
        stored.expect("infallible");
        given_up
    }

    #[test]
    fn the_oldest_page_that_nothing_follows_goes_first() {
        let mut prefixes = Prefixes::new(2);
        store(&mut prefixes, &[1, 2, 3, 4, 5]);
        store(&mut prefixes, &[1, 2, 7]);
        assert_eq!(prefixes.len(), 4);
        assert_eq!(prefixes.longest(&[1, 2, 3, 4, 9], &Cut::NONE, 1).1, 4);
        assert_eq!(prefixes.longest(&[1, 2, 3, 9], &Cut::NONE, 1).1, 3);
        assert_eq!(prefixes.longest(&[1, 2, 3, 9], &Cut::NONE, 2).1, 2);
        let mut order = Vec::new();
        order.extend(prefixes.take_oldest(|page| page.len() != 5));
        while let Some(page) = prefixes.take_oldest(|_| true) {
            order.push(page);
        }
        let expected: [&[u32]; 4] = [&[1, 2, 7], &[1, 2, 3, 4, 5], &[1, 2, 3, 4], &[1, 2]];
        assert_eq!((order, prefixes.len()), (expected.map(<[u32]>::to_vec).to_vec(), 0));
    }

    #[test]
    fn a_longer_page_takes_the_place_of_what_it_begins_with() {
        let mut prefixes = Prefixes::new(4);
        assert_eq!(store(&mut prefixes, &[1, 2]), Vec::<Vec<u32>>::new());
        assert_eq!(store(&mut prefixes, &[1, 2, 3]), [[1, 2]]);
        assert_eq!(store(&mut prefixes, &[1]), Vec::<Vec<u32>>::new());
        assert_eq!(store(&mut prefixes, &[1, 2, 3, 4, 5]), [[1, 2, 3]]);
        assert_eq!((prefixes.len(), prefixes.stored()), (2, 4));
    }

    proptest! {
        /// The longest beginning is found as by a search of all texts, and its pages hold it.
        #[test]
        fn the_longest_beginning_is_found(
            texts in proptest::collection::vec(proptest::collection::vec(0u32..3, 0..12), 0..12),
            wanted in proptest::collection::vec(0u32..3, 0..12),
            positions in 1usize..5,
            least in 1usize..4,
        ) {
            let mut prefixes = Prefixes::new(positions);
            let mut given_up = 0;
            texts.iter().for_each(|text| given_up += store(&mut prefixes, text).len());
            prop_assert_eq!(prefixes.stored() as usize - given_up, prefixes.len());
            let common = |text: &Vec<u32>| text.iter().zip(&wanted).take_while(|(a, b)| a == b).count();
            let most = texts.iter().map(common).max().unwrap_or(0);
            let (pages, len) = prefixes.longest(&wanted, &Cut::NONE, least);
            let partial = most % positions;
            prop_assert_eq!(len, if partial < least { most - partial } else { most });
            prop_assert_eq!(pages.len(), len.div_ceil(positions));
            for (number, page) in pages.iter().enumerate() {
                let end = len.min((number + 1) * positions);
                prop_assert!(page.starts_with(&wanted[..end]), "{page:?}");
            }
            prop_assert_eq!(prefixes.count(|_| true), prefixes.len());
            let mut taken = 0;
            while prefixes.take_oldest(|page| page.len() % 2 == 0).is_some() {
                taken += 1;
            }
            prop_assert_eq!((taken + given_up, prefixes.len()), (prefixes.stored() as usize, 0));
        }

        /// A prompt takes what the best of the texts has in common with it, by tokens and by who wrote them; each is
        /// a prompt and what was written after it.
        #[test]
        fn what_is_found_was_written_alike(
            texts in proptest::collection::vec((1usize..30, 0usize..12, 0usize..30), 0..8),
            (prompt, more, same) in (1usize..30, 0usize..12, 0usize..30),
            positions in 1usize..9,
            chunk in 1usize..9,
            least in 1usize..4,
            alone: bool,
        ) {
            // The first `same` tokens of each are the same, the others are its own.
            let tokens = |own: usize, len: usize, same: usize| -> Vec<u32> {
                (0..len).map(|at| if at < same { 0 } else { own as u32 + 1 }).collect()
            };
            let cut = |prompt: usize| {
                Cut::new(prompt, positions, chunk).with_text_alone(if alone { prompt } else { usize::MAX })
            };
            let mut prefixes = Prefixes::new(positions);
            for (own, (prompt, written, same)) in texts.iter().enumerate() {
                store_cut(&mut prefixes, &tokens(own, prompt + written, *same), &cut(*prompt));
            }
            // A request that was put back has written some of its text.
            let wanted = tokens(texts.len(), prompt + more, same);
            let wanted = &wanted[..wanted.len() - 1];
            let reusable = texts.iter().enumerate().map(|(own, (others, written, same))| {
                let other = tokens(own, others + written, *same);
                let (cut, others) = (cut(prompt), cut(*others));
                let all = other.iter().zip(wanted).enumerate();
                let alike = all.take_while(|(at, (a, b))| a == b && cut.writer(*at) == others.writer(*at));
                cut.boundary(alike.count())
            });
            let most = reusable.max().unwrap_or(0);
            let (pages, len) = prefixes.longest(wanted, &cut(prompt), least);
            let partial = most % positions;
            prop_assert_eq!(len, if partial < least { most - partial } else { most });
            prop_assert_eq!(pages.len(), len.div_ceil(positions));
        }
    }
}
