//! What a kernel sees of its tables.

use dacapo::prelude::*;
use dacapo::{DeviceOptions, Error, host::HostOptions};

/// A chunk that was given a part of a table would look coefficients up past its end.
#[test]
fn a_kernel_in_chunks_sees_its_tables_whole() {
    for threads in [1, 3] {
        let host = HostOptions::new().threads(threads);
        let device: Device = Device::open(DeviceOptions::new().backend(host)).unwrap();
        let mut stream = device.stream().unwrap();
        let program = Program::<(Uniform<u32>, Out<u32>, Uniform<u32>)>::new("scale");
        let scale = program.host_chunks(|(table, out, by), chunk| {
            let rows = chunk.rows().map(|row| table[row] * by[0]);
            out.iter_mut().zip(rows).for_each(|(out, row)| *out = row);
        });
        let scale = scale.load(&device).unwrap();
        // Neither length of a table divides by the rows: only outputs must.
        let (rows, table) = (100, (0..101).collect::<Vec<u32>>());
        let mut out = stream.alloc_scratch::<u32>(rows).unwrap();
        stream.launch(&scale, Grid::covering(rows), (&table, &mut out, &[3])).unwrap();
        assert_eq!(stream.read(&out).unwrap(), (0..100).map(|row| row * 3).collect::<Vec<_>>());
        let mut uneven = stream.alloc_scratch::<u32>(rows + 1).unwrap();
        let error = stream.launch(&scale, Grid::covering(rows), (&table, &mut uneven, &[3])).unwrap_err();
        assert!(matches!(error, Error::Unchunkable { len: 101, outer: 100, .. }));
    }
}
