//! Profiles that came with the image: beside it, or in the mount itself. Profiles learned on this
//! machine take precedence, and a profile that launches contradict is forgotten.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{Read, Seek};

use launch_profile::{Learned, Program, limits};
use rustix::io::Errno;

/// Name of a profile in the root directory of a mount.
pub const PATH_IN_MOUNT: &str = ".erofast-launches";

/// Where a profile came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// The profile was learned on this machine.
    Here,
    /// A file beside the image, on the same disk or server.
    Beside,
    /// The registry that has the image.
    Registry,
    /// The image itself.
    Image,
}

impl Origin {
    /// The word for the counters.
    pub fn word(self) -> &'static str {
        match self {
            Self::Here => "here",
            Self::Beside => "beside",
            Self::Registry => "registry",
            Self::Image => "image",
        }
    }

    /// The name of the profile in messages.
    pub(crate) fn subject(self) -> &'static str {
        match self {
            Self::Here => "the launch profile",
            Self::Beside => "the launch profile beside the image",
            Self::Registry => "the launch profile in the registry",
            Self::Image => "the launch profile in the image",
        }
    }
}

/// A program, and the origin of its profile.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) program: Program,
    pub(crate) origin: Origin,
}

/// A program that may be replayed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate<'k> {
    pub(crate) program: &'k Program,
    pub(crate) origin: Origin,
    /// Number of consecutive mounts without a launch of the program, counted on this machine.
    pub(crate) idle_mounts: u32,
}

impl Candidate<'_> {
    pub(crate) fn to_known(self) -> Known {
        Known {
            program: self.program.clone(),
            origin: self.origin,
        }
    }
}

/// The profiles that came with the image.
#[derive(Debug, Default)]
pub(crate) struct Travelling {
    programs: Vec<Known>,
    paths: HashSet<Vec<u8>>,
    forgotten: HashSet<Vec<u8>>,
}

impl Travelling {
    /// Adds the programs in a file that are not known yet. The error is one line.
    pub(crate) fn add(&mut self, mut file: File, origin: Origin) -> Result<(), String> {
        let about = |what: &dyn std::fmt::Display| format!("{}: {what}", origin.subject());
        let mut bytes = Vec::new();
        let most = limits::TRAVELLING_BYTES as u64 + 1;
        // An earlier companion may have read from the same open file.
        let read = file.rewind();
        let read = read.and_then(|()| file.take(most).read_to_end(&mut bytes));
        // A handle opened with O_PATH is passed for anything that is not a regular file or may not
        // be read.
        let is_handle = Some(Errno::BADF.raw_os_error());
        read.map_err(|error| match error.raw_os_error() == is_handle {
            true => about(&"not a regular file that can be opened"),
            false => about(&error),
        })?;
        let learned = Learned::parse_travelling(&bytes).map_err(|error| about(&error))?;
        for program in learned.programs {
            let has_some = !program.profile.windows.is_empty();
            if has_some && self.paths.insert(program.path.clone()) {
                // How a program is used elsewhere says nothing about this machine.
                let program = Program {
                    launches: 0,
                    idle_mounts: 0,
                    ..program
                };
                self.programs.push(Known { program, origin });
            }
        }
        Ok(())
    }

    /// The profile of a program.
    pub(crate) fn of(&self, path: &[u8]) -> Option<&Known> {
        let mut programs = self.all();
        programs.find(|known| known.program.path == path)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Known> {
        let forgotten = &self.forgotten;
        let programs = self.programs.iter();
        programs.filter(|known| !forgotten.contains(&known.program.path))
    }

    /// Forgets a program for as long as the mount exists.
    pub(crate) fn forget(&mut self, path: &[u8]) {
        self.forgotten.insert(path.to_vec());
    }

    /// The learned programs, followed by those that came with the image, each program only once.
    pub(crate) fn beside<'k>(
        &'k self,
        learned: &'k [Program],
    ) -> impl Iterator<Item = Candidate<'k>> {
        let is_empty = self.programs.is_empty();
        let by_path = learned.iter().filter(|_| !is_empty);
        let by_path = by_path.map(|program| (&program.path[..], program));
        let by_path: HashMap<&[u8], &Program> = by_path.collect();
        let here = learned.iter().filter(|program| !program.is_note());
        let here = here.map(|program| Candidate {
            program,
            origin: Origin::Here,
            idle_mounts: program.idle_mounts,
        });
        let travelling = self.all().filter_map(move |known| {
            let Known { program, origin } = known;
            let idle_mounts = match by_path.get(&program.path[..]) {
                Some(program) if !program.is_note() => return None,
                Some(note) => note.idle_mounts,
                None => 0,
            };
            Some(Candidate {
                program,
                origin: *origin,
                idle_mounts,
            })
        });
        here.chain(travelling)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn file(text: &str) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    const ONE: &str = "erofast-launches 4\nprogram a\nlaunches 7\nfile 9 a\nread 0 0\n\
                       program b\nfile 9 b\nread 0 0\n";

    #[test]
    fn what_was_learned_here_comes_first_then_what_is_beside_then_what_is_inside() {
        let mut travelling = Travelling::default();
        travelling.add(file(ONE), Origin::Beside).unwrap();
        let inside = ONE.replace("program b", "program c") + "program empty\n";
        travelling.add(file(&inside), Origin::Image).unwrap();
        let program = |path: &str, launches, idle_mounts| Program {
            path: path.into(),
            launches,
            idle_mounts,
            ..Program::default()
        };
        let learned = [program("b", 1, 0), program("c", 0, 2)];
        let shown = |learned: &[Program], travelling: &Travelling| {
            let shown = travelling.beside(learned).map(|known| {
                let path = String::from_utf8_lossy(&known.program.path).into_owned();
                (path, known.origin, known.idle_mounts)
            });
            shown.collect::<Vec<_>>()
        };
        let expected = [
            ("b".to_owned(), Origin::Here, 0),
            ("a".to_owned(), Origin::Beside, 0),
            ("c".to_owned(), Origin::Image, 2),
        ];
        assert_eq!(shown(&learned, &travelling), expected);
        assert_eq!(travelling.of(b"a").unwrap().program.launches, 0);
        travelling.forget(b"a");
        assert!(travelling.of(b"a").is_none());
        assert_eq!(shown(&learned, &travelling).len(), 2);
    }

    #[test]
    fn what_cannot_be_read_is_one_line_that_says_where_it_was() {
        let mut travelling = Travelling::default();
        let long = format!("{ONE}# {}\n", "x".repeat(limits::TRAVELLING_BYTES));
        for (text, why) in [
            ("Dear reader", "not a launch profile"),
            ("erofast-launches 9\n", "version 9"),
            ("", "truncated"),
            (&long, "bytes; the limit"),
            ("erofast-launches 4\nprogram a\nname 0 ../x\n", "line 3"),
        ] {
            let line = travelling.add(file(text), Origin::Registry).unwrap_err();
            let starts = line.starts_with("the launch profile in the registry: ");
            assert!(
                starts && line.contains(why) && !line.contains('\n'),
                "{line}"
            );
        }
        assert_eq!(travelling.all().count(), 0);
    }
}
