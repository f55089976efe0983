//! SEEK_HOLE and SEEK_DATA.

use std::fs::File;

use erofs_fuse::{mount, stat};
use rustix::fs::{SeekFrom, seek};

use crate::built::BuiltImage;
use crate::place::Place;
use crate::{Test, request};

pub const TESTS: &[Test] = tests![holes_are_asked_for_again_only_where_there_can_be_some];

fn holes_are_asked_for_again_only_where_there_can_be_some() {
    for (options, requests) in [("--chunksize=4096", 4), ("-zlz4", 1)] {
        let Some(built) = BuiltImage::new("holes", &[options], 0) else {
            return;
        };
        let place = Place::new();
        mount(&request(&built.image(), &place, "io_uring=off")).unwrap();
        for (name, size) in [("file", 8), ("exec", 10)] {
            let file = File::open(place.path.join(name)).unwrap();
            let found = [SeekFrom::Data(1), SeekFrom::Hole(1)].map(|from| seek(&file, from));
            assert_eq!(found, [Ok(1), Ok(size)], "{options}: {name}");
        }
        let seen = &stat(&place.path).unwrap()["fuse"]["by_kind"]["lseek"];
        assert_eq!(*seen, requests, "{options}");
    }
}
