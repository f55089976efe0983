//! Measures how fast an image of 512 MiB arrives over loopback, and is read from the cache:
//! `cargo run --release -p erofast-fetch --example stream target/release/erofast-fetch`.
#![allow(dead_code)]

#[path = "../tests/server.rs"]
mod server;

use std::time::Instant;

use remote_image::{Class, Fetcher, ImageUrl, Options, RemoteFile};

const LENGTH: usize = 512 << 20;
const READ: usize = 1 << 20;

fn main() -> std::io::Result<()> {
    let program = std::env::args().nth(1).expect("the program erofast-fetch");
    let content = (0..LENGTH / 4).flat_map(|number| (number as u32).to_le_bytes());
    let server = server::Server::start(content.collect());
    let cache = tempfile::tempdir()?;
    let cache_dir = Some(cache.path().to_owned());
    let options = Options {
        cache_dir,
        ..Options::default()
    };
    let url = ImageUrl::parse(&server.url("/a"))
        .expect("a URL")
        .expect("a good one");
    for what in ["fetched", "cached, checked", "cached"] {
        let mut fetcher = Fetcher::start_program(program.clone().into(), &[], &url, &options)?;
        let file = RemoteFile::new(fetcher.client()?);
        if what == "cached" {
            read(&file)?;
        }
        let start = Instant::now();
        read(&file)?;
        let rate = LENGTH as f64 / start.elapsed().as_secs_f64() / 1e6;
        println!(
            "{what}: {rate:.0} MB/s, {} requests",
            server.state().asked.len()
        );
    }
    Ok(())
}

fn read(file: &RemoteFile) -> std::io::Result<()> {
    let mut bytes = vec![0; READ];
    for start in (0..LENGTH as u64).step_by(READ) {
        while !file.read_cached(&mut bytes, start)? {
            let range = start..start + READ as u64;
            file.request(std::slice::from_ref(&range), Class::Demand)?
                .wait()?;
        }
    }
    Ok(())
}
