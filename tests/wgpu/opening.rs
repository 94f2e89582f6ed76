//! Opening a device, and what is said where that is not possible.

use dacapo::prelude::*;
use dacapo::wgpu::{Fallback, Wgpu, WgpuOptions, wgpu};
use dacapo::{Call, DeviceOptions, Error};

use crate::support::{Program, adapters, device_with, message, ramp, within_long, written};

fn open(options: WgpuOptions) -> dacapo::Result<Device<Wgpu>> {
    Device::open(DeviceOptions::new().backend(options))
}

/// "No suitable adapter" sends nobody anywhere. What is missing depends on the machine.
#[test]
fn where_no_adapter_fits_the_message_names_those_that_there_are() {
    let error = open(WgpuOptions::new().adapter("no adapter has this name")).unwrap_err();
    assert!(matches!(error, Error::Driver { call: Call::Open, .. }), "{error}");
    let said = message(&error);
    let found = adapters();
    if found.is_empty() {
        assert!(said.contains("this machine has no driver for any of"), "{said}");
    }
    for adapter in found {
        let name = format!("`{}`", adapter.get_info().name);
        assert!(said.contains(&name) && said.contains("not of that name"), "{said}");
    }
}

/// Options that exclude everything are not the machine's fault.
#[test]
fn options_without_an_interface_are_told_so() {
    let error = open(WgpuOptions::new().backends(wgpu::Backends::empty())).unwrap_err();
    assert!(message(&error).contains("the options ask for no interface"), "{error}");
}

/// Names differ by their case from driver to driver, and nobody types all of "llvmpipe (LLVM 15.0.6, 256 bits)".
#[test]
fn an_adapter_is_found_by_a_part_of_its_name_in_any_case() {
    let program = crate::program!();
    let name = program.device.adapter_info().name;
    let part: String = name.chars().take(6).collect();
    for part in [part.to_uppercase(), part.to_lowercase(), name] {
        let device = open(WgpuOptions::new().adapter(part)).unwrap();
        let mut stream = device.stream().unwrap();
        let x = written(&mut stream, &ramp(100));
        assert_eq!(stream.read(&x).unwrap(), ramp(100));
    }
}

/// A service that meant to have a GPU would run at a hundredth of its speed, unnoticed.
#[test]
fn software_adapters_are_refused_or_asked_for() {
    let is_software = |adapter: &wgpu::Adapter| adapter.get_info().device_type == wgpu::DeviceType::Cpu;
    let found = adapters();
    if found.iter().all(is_software) {
        let error = open(WgpuOptions::new().fallback(Fallback::Refused)).unwrap_err();
        assert!(found.is_empty() || message(&error).contains("software is refused"), "{error}");
    }
    if !found.iter().any(is_software) {
        let options = WgpuOptions::new().fallback(Fallback::Only).backends(wgpu::Backends::PRIMARY);
        let error = open(options).unwrap_err();
        assert!(found.is_empty() || message(&error).contains("only software is asked for"), "{error}");
    }
    if !found.is_empty() {
        open(WgpuOptions::new()).unwrap();
    }
}

/// A device that was opened for drawing alone would fail at the first kernel, in words about bindings.
#[test]
fn parts_that_cannot_compute_are_refused_with_what_they_lack() {
    let few = |limits| wgpu::Limits { max_storage_buffers_per_shader_stage: 3, ..limits };
    let Some(few) = Program::with(few) else { return };
    let error = Device::<Wgpu>::from_parts(few.device, few.queue).unwrap_err();
    assert!(message(&error).contains("fewer than 4 storage buffers"), "{error}");

    let none = |limits| wgpu::Limits { max_compute_invocations_per_workgroup: 0, ..limits };
    let none = Program::with(none).unwrap();
    let error = Device::<Wgpu>::from_parts(none.device, none.queue).unwrap_err();
    assert!(message(&error).contains("no compute shader"), "{error}");

    let (one, other) = (Program::new().unwrap(), Program::new().unwrap());
    for (device, queue) in [(&one, one.sibling().queue), (&one, other.queue)] {
        let error = Device::<Wgpu>::from_parts(device.device.clone(), queue).unwrap_err();
        assert!(message(&error).contains("the queue is another device's"), "{error}");
    }

    let gone = Program::new().unwrap();
    gone.device.destroy();
    let error = Device::<Wgpu>::from_parts(gone.device, gone.queue).unwrap_err();
    assert!(message(&error).contains("lost or destroyed already"), "{error}");
}

/// What is opened with less works with less: the limits are the device's own, not those of its adapter.
#[test]
fn parts_with_the_least_limits_work() {
    let least = |limits: wgpu::Limits| {
        let alignments = wgpu::Limits {
            min_uniform_buffer_offset_alignment: 256,
            min_storage_buffer_offset_alignment: 256,
            ..wgpu::Limits::downlevel_defaults()
        };
        alignments.or_worse_values_from(&limits)
    };
    let Some(program) = Program::with(least) else { return };
    let device = program.open();
    let mut stream = device.stream().unwrap();
    let mut x = written(&mut stream, &ramp(1000));
    stream.fill(x.slice_mut(3..17).unwrap(), 7u32).unwrap();
    let mut expected = ramp(1000);
    expected[3..17].fill(7);
    assert_eq!(stream.read(&x).unwrap(), expected);
    assert_eq!(program.errors(), 0);
}

/// What one device lets go of must not take another one's memory along.
#[test]
fn devices_on_one_adapter_come_and_go_apart() {
    let first = crate::device!();
    let mut stream = first.stream().unwrap();
    let kept = written(&mut stream, &[1, 2]);
    for _ in 0..3 {
        let options = WgpuOptions::new().in_flight(64).bind_groups(0);
        let Some(second) = device_with(DeviceOptions::new().max_streams(2).backend(options)) else { return };
        let mut other = second.stream().unwrap();
        let x = other.alloc::<u32>(1000).unwrap();
        assert_eq!(other.read(&x).unwrap(), [0; 1000]);
        let mut y = other.alloc(2).unwrap();
        let error = other.copy(&kept, &mut y).unwrap_err();
        assert!(matches!(error, Error::WrongDevice { .. }), "{error}");
    }
    assert_eq!(stream.read(&kept).unwrap(), [1, 2]);
}

/// What is still in flight needs its device, which nobody holds any more.
#[test]
fn a_device_that_is_dropped_in_flight_ends_its_work_first() {
    let device = crate::device!();
    let mut stream = device.stream().unwrap();
    let x = written(&mut stream, &ramp(1 << 20));
    let future = stream.read_async(&x).unwrap();
    drop((x, stream, device));
    assert_eq!(within_long(future).unwrap().unwrap(), ramp(1 << 20));
}

/// All OpenGL adapters of one instance of wgpu's share a context, and wgpu panics where two threads use it at once.
#[test]
fn threads_open_devices_at_once_also_by_opengl() {
    let opened = || {
        // Where there is OpenGL, a name that nobody has looks at it, too.
        open(WgpuOptions::new().adapter("no adapter has this name")).unwrap_err();
        if let Ok(device) = open(WgpuOptions::new().backends(wgpu::Backends::GL)) {
            let mut stream = device.stream().unwrap();
            let x = written(&mut stream, &ramp(100));
            assert_eq!(stream.read(&x).unwrap(), ramp(100));
        }
    };
    std::thread::scope(|scope| (0..4).for_each(|_| _ = scope.spawn(|| (0..5).for_each(|_| opened()))));
}
