//! The hand-written side: a device, its buffers and kernels, and loops over dispatches.

use std::ops::Range;
use std::time::Duration;

use wgpu::{
    BindGroup, Buffer, BufferUsages, CommandEncoder, ComputePass, Device, Features, PollType, Queue,
    SubmissionIndex,
};

use crate::measure::Side;
use crate::schedule::Schedule;

/// A device and what the rows need of it.
pub struct Gpu {
    pub device: Device,
    pub queue: Queue,
    pub name: String,
    /// Whether it is a processor that pretends, so that long work is made shorter.
    pub pretends: bool,
}

/// A range of a buffer.
#[derive(Clone)]
pub struct Place {
    pub buffer: Buffer,
    pub start: u64,
    pub bytes: u64,
}

/// How a kernel is told about a binding.
#[derive(Clone, Copy)]
pub enum Binding {
    Read,
    ReadWrite,
    /// A uniform, wherever the dispatch says.
    Uniform,
}

pub struct Kernel {
    pub pipeline: wgpu::ComputePipeline,
    layout: wgpu::BindGroupLayout,
}

/// What each allocation of the hand-written side is for.
const USAGES: BufferUsages = BufferUsages::STORAGE
    .union(BufferUsages::UNIFORM)
    .union(BufferUsages::COPY_SRC)
    .union(BufferUsages::COPY_DST);

impl Gpu {
    pub fn new(device: Device, queue: Queue) -> Self {
        let info = device.adapter_info();
        let name = format!("{} ({} {})", info.name, info.driver, info.driver_info);
        Gpu { device, queue, name, pretends: info.device_type == wgpu::DeviceType::Cpu }
    }

    pub fn buffer(&self, bytes: u64) -> Buffer {
        let usage = USAGES;
        self.device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: bytes,
            usage,
            mapped_at_creation: false,
        })
    }

    /// So many allocations, each a buffer of its own, which read as zero.
    pub fn buffers(&self, count: u64, bytes: u64) -> Vec<Place> {
        (0..count).map(|_| Place { buffer: self.buffer(bytes), start: 0, bytes }).collect()
    }

    /// So many allocations in one page.
    pub fn page(&self, count: u64, bytes: u64) -> Vec<Place> {
        let step = bytes.next_multiple_of(256);
        let buffer = self.buffer(count * step);
        (0..count).map(|n| Place { buffer: buffer.clone(), start: n * step, bytes }).collect()
    }

    /// Compiles a kernel for these bindings, and so many bytes of immediates.
    pub fn kernel(&self, wgsl: &str, bindings: &[Binding], immediate_size: u32) -> Kernel {
        let source = wgpu::ShaderSource::Wgsl(wgsl.into());
        let module = self.device.create_shader_module(wgpu::ShaderModuleDescriptor { label: None, source });
        let entries: Vec<_> = (0..).zip(bindings).map(|(n, binding)| binding.entry(n)).collect();
        let layout = wgpu::BindGroupLayoutDescriptor { label: None, entries: &entries };
        let layout = self.device.create_bind_group_layout(&layout);
        let groups = [Some(&layout)];
        let all = wgpu::PipelineLayoutDescriptor { label: None, bind_group_layouts: &groups, immediate_size };
        let all = self.device.create_pipeline_layout(&all);
        let pipeline = self.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: None,
            layout: Some(&all),
            module: &module,
            entry_point: None,
            compilation_options: Default::default(),
            cache: None,
        });
        Kernel { pipeline, layout }
    }

    pub fn group(&self, kernel: &Kernel, places: &[&Place]) -> BindGroup {
        let mut entries = smallvec::SmallVec::<[wgpu::BindGroupEntry<'_>; 4]>::new();
        entries.extend(
            (0..)
                .zip(places)
                .map(|(binding, place)| wgpu::BindGroupEntry { binding, resource: place.resource() }),
        );
        self.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &kernel.layout,
            entries: &entries,
        })
    }

    pub fn encoder(&self) -> CommandEncoder {
        self.device.create_command_encoder(&Default::default())
    }

    pub fn wait(&self, submission_index: Option<SubmissionIndex>) {
        self.device.poll(PollType::Wait { submission_index, timeout: None }).unwrap();
    }

    /// The numbers of a place, by way of a buffer that the host can look at.
    pub fn read<T: bytemuck::Pod>(&self, place: &Place) -> Vec<T> {
        let landing = self.landing(place.bytes);
        let mut encoder = self.encoder();
        encoder.copy_buffer_to_buffer(&place.buffer, place.start, &landing, 0, place.bytes);
        let last = self.queue.submit([encoder.finish()]);
        self.mapped(&landing, last)
    }

    pub fn landing(&self, bytes: u64) -> Buffer {
        let usage = BufferUsages::MAP_READ | BufferUsages::COPY_DST;
        self.device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: bytes,
            usage,
            mapped_at_creation: false,
        })
    }

    /// The numbers of a landing that a submission has written.
    pub fn mapped<T: bytemuck::Pod>(&self, landing: &Buffer, last: SubmissionIndex) -> Vec<T> {
        landing.map_async(wgpu::MapMode::Read, .., |mapped| mapped.unwrap());
        self.wait(Some(last));
        let numbers = bytemuck::cast_slice(&landing.get_mapped_range(..).unwrap()).to_vec();
        landing.unmap();
        numbers
    }
}

impl Place {
    fn resource(&self) -> wgpu::BindingResource<'_> {
        let size = wgpu::BufferSize::new(self.bytes);
        wgpu::BindingResource::Buffer(wgpu::BufferBinding { buffer: &self.buffer, offset: self.start, size })
    }
}

impl Binding {
    fn entry(self, binding: u32) -> wgpu::BindGroupLayoutEntry {
        let (ty, has_dynamic_offset) = match self {
            Binding::Read => (wgpu::BufferBindingType::Storage { read_only: true }, false),
            Binding::ReadWrite => (wgpu::BufferBindingType::Storage { read_only: false }, false),
            Binding::Uniform => (wgpu::BufferBindingType::Uniform, true),
        };
        let ty = wgpu::BindingType::Buffer { ty, has_dynamic_offset, min_binding_size: None };
        wgpu::BindGroupLayoutEntry { binding, visibility: wgpu::ShaderStages::COMPUTE, ty, count: None }
    }
}

/// How the end of a run becomes known.
#[derive(Clone)]
pub enum End {
    /// A wait for the last submission.
    Waited,
    /// The same, by asking again and again.
    Asked,
    /// The result is copied and mapped.
    Read { from: Place, landing: Buffer },
}

/// Encodes a range of the nodes.
type Encode<'g> = dyn FnMut(&mut CommandEncoder, Range<u32>) + 'g;

/// Dispatches that are encoded again and again, in submits of a schedule.
pub struct Loop<'g> {
    gpu: &'g Gpu,
    nodes: u32,
    schedule: Schedule,
    encode: Box<Encode<'g>>,
    check: Box<dyn Fn(u32) + 'g>,
    end: End,
    last: Option<SubmissionIndex>,
    runs: u32,
}

impl<'g> Loop<'g> {
    /// `encode` encodes a range of the nodes; `check` is told how many runs there were.
    pub fn new(
        gpu: &'g Gpu,
        nodes: u32,
        schedule: Schedule,
        encode: impl FnMut(&mut CommandEncoder, Range<u32>) + 'g,
        check: impl Fn(u32) + 'g,
    ) -> Self {
        let (encode, check) = (Box::new(encode), Box::new(check));
        Loop { gpu, nodes, schedule, encode, check, end: End::Waited, last: None, runs: 0 }
    }

    /// The same for dispatches alone: one pass a submit, whose pipeline is set once.
    pub fn of_passes(
        gpu: &'g Gpu,
        nodes: u32,
        schedule: Schedule,
        kernel: &'g Kernel,
        mut dispatch: impl FnMut(&mut ComputePass<'_>, u32) + 'g,
        check: impl Fn(u32) + 'g,
    ) -> Self {
        let encode = move |encoder: &mut CommandEncoder, nodes: Range<u32>| {
            let mut pass = encoder.begin_compute_pass(&Default::default());
            pass.set_pipeline(&kernel.pipeline);
            nodes.for_each(|node| dispatch(&mut pass, node));
        };
        Loop::new(gpu, nodes, schedule, encode, check)
    }

    pub fn ending(mut self, end: End) -> Self {
        self.end = end;
        self
    }
}

impl Side for Loop<'_> {
    fn enqueue(&mut self) {
        let mut chunks = self.schedule.chunks(self.nodes).peekable();
        while let Some(chunk) = chunks.next() {
            let mut encoder = self.gpu.encoder();
            (self.encode)(&mut encoder, chunk);
            if let (End::Read { from, landing }, None) = (&self.end, chunks.peek()) {
                encoder.copy_buffer_to_buffer(&from.buffer, from.start, landing, 0, from.bytes);
            }
            self.last = Some(self.gpu.queue.submit([encoder.finish()]));
        }
        self.runs += 1;
    }

    fn wait(&mut self) {
        let Some(last) = self.last.take() else { return };
        match &self.end {
            End::Waited => self.gpu.wait(Some(last)),
            End::Asked => while !self.gpu.device.poll(PollType::Poll).unwrap().is_queue_empty() {},
            End::Read { landing, .. } => drop(self.gpu.mapped::<f32>(landing, last)),
        }
    }

    fn verify(&mut self) {
        (self.check)(self.runs);
    }

    fn on_device(&mut self) -> Option<Duration> {
        let gpu = self.gpu;
        if !gpu.device.features().contains(Features::TIMESTAMP_QUERY_INSIDE_ENCODERS) {
            return None;
        }
        let descriptor = wgpu::QuerySetDescriptor { label: None, ty: wgpu::QueryType::Timestamp, count: 2 };
        let (set, usage) =
            (gpu.device.create_query_set(&descriptor), BufferUsages::QUERY_RESOLVE | BufferUsages::COPY_SRC);
        let buffer = gpu.device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: 16,
            usage,
            mapped_at_creation: false,
        });
        let mut encoder = gpu.encoder();
        encoder.write_timestamp(&set, 0);
        (self.encode)(&mut encoder, 0..self.nodes);
        encoder.write_timestamp(&set, 1);
        encoder.resolve_query_set(&set, 0..2, &buffer, 0);
        gpu.queue.submit([encoder.finish()]);
        self.runs += 1;
        let ticks: Vec<u64> = gpu.read(&Place { buffer, start: 0, bytes: 16 });
        let each = f64::from(gpu.queue.get_timestamp_period());
        Some(Duration::from_nanos((ticks[1].saturating_sub(ticks[0]) as f64 * each) as u64))
    }
}
