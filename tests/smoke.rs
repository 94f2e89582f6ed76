use dacapo::prelude::*;
use dacapo::{Error, Host};

type K1 = Kernel<(In<f32>, Out<f32>)>;

fn kernels(device: &Device) -> (K1, K1) {
    let add1 = Program::<(In<f32>, Out<f32>)>::new("add1")
        .host(|(x, y), _| y.iter_mut().zip(x).for_each(|(y, x)| *y = x + 1.0))
        .load(device)
        .unwrap();
    let mul2 = Program::<(In<f32>, Out<f32>)>::new("mul2")
        .host_chunks(|(x, y), chunk| y.iter_mut().zip(&x[chunk.rows()]).for_each(|(y, x)| *y = x * 2.0))
        .load(device)
        .unwrap();
    (add1, mul2)
}

#[test]
fn record_and_replay() {
    let device = Device::host().unwrap();
    let mut s = device.stream().unwrap();
    let (add1, mul2) = kernels(&device);
    let mut x = s.alloc::<f32>(100).unwrap();
    let mut y = s.alloc::<f32>(100).unwrap();
    let (mut graph, ()) = s
        .record(|w| {
            let mut t = w.alloc::<f32>(100)?;
            w.launch(&add1, Grid::covering(100), (&x, &mut t))?;
            w.launch(&mul2, Grid::covering(100), (&t, &mut y))
        })
        .unwrap();
    assert_eq!(graph.nodes(), 2);
    assert_eq!(graph.edges(), 1);
    for i in 0..5 {
        s.write(&mut x, &[i as f32; 100]).unwrap();
        graph.replay(&mut s).unwrap();
        assert_eq!(s.read(&y).unwrap(), vec![(i as f32 + 1.0) * 2.0; 100]);
    }
    println!("{}", graph.to_dot());
}

#[test]
fn by_value() -> Result<(), Error> {
    let (device, stepper) = Device::<Host>::stepped(Default::default())?;
    let (add1, mul2) = kernels(&device);
    let mut s = device.stream()?;
    let mut other = device.stream()?;
    let mut x = s.alloc::<f32>(100)?;
    let mut y = s.alloc::<f32>(100)?;
    let mut s = s.prepare()?.begin()?;
    s.launch(&add1, Grid::covering(100), (&x, &mut y))?;
    let mut out = s.alloc::<f32>(100)?;
    s.launch(&mul2, Grid::covering(100), (&y, &mut out))?;
    let (mut graph, mut s) = s.end()?;
    assert!(matches!(s.read(&out), Err(Error::NotReplayed)));
    other.write(&mut x, &[3.0; 100])?;
    let ticket = graph.replay(&mut s)?;
    assert!(!ticket.is_done());
    drop(graph);
    drop(y);
    assert_eq!(other.read(&out)?, vec![8.0; 100]);
    assert!(ticket.is_done());
    stepper.run_all();
    Ok(())
}
