//! Decides which replay goes first: that of the program that was launched last. A mount may replay
//! many programs, whose steps are all done by two threads. Steps for programs that nobody has
//! launched wait while a launch is under way, since they would take CPUs and network bandwidth from
//! it.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use sys::pi_condvar::PiCondvar;
use sys::pi_mutex::PiMutex;

use crate::client::Room;
use crate::reader::Registrar;
use crate::replay::{OpenFile, Replay};
use crate::surroundings::Mount;

/// The replays that have steps left, and the threads that do them.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    state: PiMutex<State>,
    changed: PiCondvar,
}

/// Guarded by the lock of [`Turns`].
#[derive(Debug, Default)]
struct State {
    /// The replays, in the order of their turns.
    queue: VecDeque<Turn>,
    /// Threads that have not ended.
    threads: usize,
    /// Whether only replays of launched programs get turns.
    is_held: bool,
}

#[derive(Debug)]
struct Turn {
    replay: Arc<Replay>,
    is_launched: bool,
}

impl Turns {
    /// Adds a replay: first if its program was launched, otherwise last.
    pub(crate) fn add(&self, replay: Arc<Replay>, is_launched: bool) {
        let turn = Turn {
            replay,
            is_launched,
        };
        let mut state = self.state.lock();
        match is_launched {
            true => state.queue.push_front(turn),
            false => state.queue.push_back(turn),
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Called when a program is launched: moves its replays to the front.
    pub(crate) fn launched(&self, program: &[u8]) {
        let mut state = self.state.lock();
        let (first, others): (VecDeque<Turn>, _) = std::mem::take(&mut state.queue)
            .into_iter()
            .partition(|turn| turn.replay.program() == program);
        let first = first.into_iter().map(|turn| Turn {
            is_launched: true,
            ..turn
        });
        state.queue = first.chain(others).collect();
        drop(state);
        self.changed.notify_all();
    }

    /// Sets whether programs that were not launched have to wait.
    pub(crate) fn hold(&self, is_held: bool) {
        let mut state = self.state.lock();
        let is_new = std::mem::replace(&mut state.is_held, is_held) != is_held;
        drop(state);
        if is_new {
            self.changed.notify_all();
        }
    }

    /// Stops all replays.
    pub(crate) fn stop(&self) {
        self.state.lock().stop();
        self.changed.notify_all();
    }

    /// Numbers of the threads that the caller must start so that there are `most`; these threads
    /// count as started already.
    pub(crate) fn start_threads(&self, most: usize) -> Range<usize> {
        let mut state = self.state.lock();
        let threads = state.threads;
        state.threads = threads.max(most);
        threads..most
    }

    /// Call this if a thread could not be started. Without threads, nothing is replayed.
    pub(crate) fn did_not_start(&self) {
        let mut state = self.state.lock();
        state.threads -= 1;
        if state.threads == 0 {
            state.stop();
        }
    }

    /// Runs one of the threads until no replay has steps left.
    pub(crate) fn run(&self, mount: &dyn Mount, tells: &Registrar) {
        let (mut room, mut last) = (Room::new(), None::<(Arc<Replay>, OpenFile)>);
        loop {
            let next = match self.next() {
                Next::Step(next) => next,
                Next::Wait => {
                    // An open file would keep the filesystem alive although its mount is gone.
                    last = None;
                    self.wait();
                    continue;
                }
                Next::End => return,
            };
            let (replay, open) = match &mut last {
                Some(last) if Arc::ptr_eq(&last.0, &next) => last,
                other => other.insert((next, None)),
            };
            match mount.root() {
                Some(root) => replay.step(&root, &mut room, open, tells),
                None => self.stop(),
            }
            replay.leave();
        }
    }

    /// Enters the replay whose turn it is.
    fn next(&self) -> Next {
        let mut state = self.state.lock();
        state.queue.retain(|turn| turn.replay.has_steps());
        match state.first() {
            Some(turn) => {
                turn.replay.enter();
                Next::Step(Arc::clone(&turn.replay))
            }
            None if state.queue.is_empty() => {
                state.threads -= 1;
                Next::End
            }
            None => Next::Wait,
        }
    }

    fn wait(&self) {
        let mut state = self.state.lock();
        while state.first().is_none() && !state.queue.is_empty() {
            state = self.changed.wait(state);
        }
    }
}

enum Next {
    Step(Arc<Replay>),
    Wait,
    End,
}

impl State {
    fn first(&self) -> Option<&Turn> {
        let mut turns = self.queue.iter();
        turns.find(|turn| turn.is_launched || !self.is_held)
    }

    fn stop(&mut self) {
        let turns = self.queue.drain(..);
        turns.for_each(|turn| turn.replay.stop());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::tests::replay_of;

    /// The names of the programs whose steps come next.
    fn order(turns: &Turns, steps: usize) -> Vec<&'static str> {
        let step = |_| match turns.next() {
            Next::Step(replay) => {
                replay.leave();
                replay.skip();
                ["a", "b", "c"]
                    .into_iter()
                    .find(|name| replay.program() == name.as_bytes())
                    .unwrap()
            }
            Next::Wait => "wait",
            Next::End => "end",
        };
        (0..steps).map(step).collect()
    }

    /// Each replay has three steps: a listing of the root, and two reads.
    fn of(names: &[&str]) -> Turns {
        let turns = Turns::default();
        for name in names {
            turns.add(Arc::new(replay_of(name, [0, 9].into_iter())), false);
        }
        assert_eq!(
            [turns.start_threads(2), turns.start_threads(2)],
            [0..2, 2..2]
        );
        turns
    }

    #[test]
    fn the_program_that_was_launched_last_goes_first() {
        let turns = of(&["a", "b"]);
        assert_eq!(order(&turns, 1), ["a"]);
        turns.launched(b"b");
        assert_eq!(order(&turns, 1), ["b"]);
        // This program becomes known only when it is launched.
        turns.add(Arc::new(replay_of("c", [0, 9].into_iter())), true);
        assert_eq!(order(&turns, 8), ["c", "c", "c", "b", "b", "a", "a", "end"]);
    }

    #[test]
    fn others_wait_while_a_launch_is_under_way() {
        let turns = of(&["a", "b"]);
        turns.launched(b"b");
        turns.hold(true);
        assert_eq!(order(&turns, 5), ["b", "b", "b", "wait", "wait"]);
        turns.hold(false);
        assert_eq!(order(&turns, 4), ["a", "a", "a", "end"]);
    }

    #[test]
    fn a_thread_that_waits_ends_with_the_replays() {
        let turns = of(&["a"]);
        turns.hold(true);
        assert_eq!(order(&turns, 1), ["wait"]);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| turns.wait());
            turns.stop();
            waits.join().unwrap();
        });
        assert_eq!(order(&turns, 1), ["end"]);
    }

    #[test]
    fn without_threads_nothing_is_replayed() {
        let turns = of(&["a"]);
        let replay = match turns.next() {
            Next::Step(replay) => replay,
            Next::Wait | Next::End => panic!("a has steps"),
        };
        replay.leave();
        turns.did_not_start();
        assert!(replay.is_running());
        turns.did_not_start();
        assert!(!replay.is_running());
    }
}
