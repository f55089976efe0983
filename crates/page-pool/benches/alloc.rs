//! Compares a buffer from the pool with a fresh mapping, touching every page: `cargo bench -p
//! page-pool`.
//!
//! Prints the median of many batches, interleaved so that noise affects all variants alike.

use std::time::Instant;

use page_pool::{PAGE_SIZE, PagePool, PoolOptions};

const BATCH: u32 = 200;
const BATCHES: usize = 101;

type Way<'a> = (String, Box<dyn FnMut() + 'a>, Vec<f64>);

fn touch(buffer: &mut [u8]) {
    buffer
        .iter_mut()
        .step_by(PAGE_SIZE)
        .for_each(|byte| *byte = std::hint::black_box(1));
}

fn time_batch(work: &mut dyn FnMut()) -> f64 {
    let start = Instant::now();
    (0..BATCH).for_each(|_| work());
    start.elapsed().as_nanos() as f64 / f64::from(BATCH)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pool = PagePool::new(&PoolOptions {
        reserved_pages: 128,
        ..Default::default()
    })?;
    let none = PagePool::new(&PoolOptions::default())?;
    let mut ways: Vec<Way> = Vec::new();
    for pages in [16, 32] {
        let bytes = pages * PAGE_SIZE;
        let (pool, none) = (&pool, &none);
        let from = move |pool: &std::sync::Arc<PagePool>| {
            touch(&mut pool.alloc(bytes).expect("memory"));
        };
        ways.push((
            format!("{pages} pages, pool"),
            Box::new(move || from(pool)),
            vec![],
        ));
        ways.push((
            format!("{pages} pages, system"),
            Box::new(move || from(none)),
            vec![],
        ));
    }
    for _ in 0..BATCHES {
        for (_, work, samples) in &mut ways {
            samples.push(time_batch(work));
        }
    }
    for (name, _, samples) in &mut ways {
        samples.sort_by(f64::total_cmp);
        let (median, worst) = (samples[BATCHES / 2], samples[BATCHES - 1]);
        println!("{name:<28} median {median:>9.0} ns, slowest batch {worst:>9.0} ns per buffer");
    }
    Ok(())
}
