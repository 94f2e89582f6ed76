//! Tables for which there is no memory: the launch says why, and the next one with the same table works.

use dacapo::Error;

use super::support::*;
use super::{N, launch, repeated, spread, spread_of, table, try_launch};

/// No memory for a table: the launch says so, and nothing is left behind.
#[test]
fn a_table_without_memory_fails_its_launch() {
    let Some(device) = open(DeviceOptions::new().max_streams(1).memory_limit(2 << 20)) else { return };
    let (mut stream, k) = (device.stream().unwrap(), spread(&device));
    let mut out = stream.alloc::<u32>(N).unwrap();
    let mut rest = Vec::new();
    while let Ok(buffer) = stream.alloc_scratch::<u8>(256) {
        rest.push(buffer);
    }
    let outcome = stream.launch(&k, Grid::covering(N), (&table(1), &mut out, Len, Len));
    assert!(matches!(outcome.unwrap_err(), Error::OutOfMemory { .. }));
    assert!(matches!(stream.read(&out).unwrap_err().root(), Error::OutOfMemory { .. }));
    let refused = stream.record(|work| try_launch(work, &k, &table(1), &mut out)).unwrap_err();
    assert!(matches!(refused, Error::OutOfMemory { .. }), "{refused}");
    drop(rest);
    launch(&mut stream, &k, &table(1), &mut out);
    assert_eq!(stream.read(&out).unwrap(), repeated(&table(1)));
}

/// Tables that nobody holds are the first thing to give up when memory runs out.
#[test]
fn tables_make_room_for_buffers() {
    let Some(device) = open(DeviceOptions::new().max_streams(2).memory_limit(4 << 20)) else { return };
    let (mut stream, k) = (device.stream().unwrap(), spread(&device));
    assert_eq!(spread_of(&mut stream, &k, &table(1)), repeated(&table(1)));
    // All that the device may hold, while a table has a page.
    let buffer = stream.alloc::<u8>(4 << 20).unwrap();
    assert_eq!(device.memory_usage().in_use, 4 << 20);
    drop(buffer);
    assert_eq!(spread_of(&mut stream, &k, &table(1)), repeated(&table(1)));
}
