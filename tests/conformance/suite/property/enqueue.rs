//! The operations that execute or are recorded.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dacapo::Call;

use super::driver::{Chosen, Driver, Verdict};
use super::model::{Access, Cause, Does, Told};
use super::program::{Calls, Code, Part, Trouble};
use super::streams::{Lane, each};
use super::subject;
use super::support::{Enqueue, Grid, Len, Touches};

use Access::{Both, Reads, Writes};

impl Driver {
    pub fn write(&mut self, on: usize, to: Part, seed: u8, trouble: Option<Trouble>) -> Verdict {
        let Some(to) = self.choose(to, &[]) else { return Ok(()) };
        self.arm(trouble, Call::Write);
        let data: Vec<u8> = (0..to.len()).map(|i| seed.wrapping_add((i as u8).wrapping_mul(3))).collect();
        self.say(|| format!("s{on}.write({to}, {data:?})"));
        let spans = vec![self.argument(&to, Writes)];
        let Some(buffer) = &mut self.buffers[to.handle] else { return Ok(()) };
        let slice = buffer.slice_mut(to.start..to.end).map_err(|error| error.to_string())?;
        let answer = each!(&mut self.lanes[on], stream => stream.write(slice, &data));
        if to.len() == 0 {
            return self.nothing(on, answer);
        }
        self.enqueued(on, (Does::Write(data), spans), None, (trouble, Call::Write), answer)
    }

    pub fn fill(&mut self, on: usize, to: Part, value: u8, trouble: Option<Trouble>) -> Verdict {
        let Some(to) = self.choose(to, &[]) else { return Ok(()) };
        self.fill_chosen(on, &to, value, trouble)
    }

    pub fn fill_chosen(&mut self, on: usize, to: &Chosen, value: u8, trouble: Option<Trouble>) -> Verdict {
        self.arm(trouble, Call::Fill);
        self.say(|| format!("s{on}.fill({to}, {value})"));
        let spans = vec![self.argument(to, Writes)];
        let Some(buffer) = &mut self.buffers[to.handle] else { return Ok(()) };
        let slice = buffer.slice_mut(to.start..to.end).map_err(|error| error.to_string())?;
        let answer = each!(&mut self.lanes[on], stream => stream.fill(slice, value));
        if to.len() == 0 {
            return self.nothing(on, answer);
        }
        self.enqueued(on, (Does::Fill(vec![value]), spans), None, (trouble, Call::Fill), answer)
    }

    pub fn fill_words(&mut self, on: usize, to: Part, value: u32, trouble: Option<Trouble>) -> Verdict {
        let Some(mut to) = self.choose(to, &[]) else { return Ok(()) };
        let first = self.span(&to).range.start;
        to.end -= to.len() % 4;
        if !first.is_multiple_of(4) {
            return Ok(());
        }
        self.arm(trouble, Call::Fill);
        self.say(|| format!("s{on}.fill({to} as words, {value:#x})"));
        let spans = vec![self.argument(&to, Writes)];
        let Some(buffer) = &mut self.buffers[to.handle] else { return Ok(()) };
        let slice = buffer.slice_mut(to.start..to.end).and_then(|slice| slice.cast::<u32>());
        let slice = slice.map_err(|error| error.to_string())?;
        let answer = each!(&mut self.lanes[on], stream => stream.fill(slice, value));
        if to.len() == 0 {
            return self.nothing(on, answer);
        }
        let pattern = value.to_ne_bytes().to_vec();
        self.enqueued(on, (Does::Fill(pattern), spans), None, (trouble, Call::Fill), answer)
    }

    pub fn copy(
        &mut self,
        on: usize,
        from: Part,
        to: Part,
        uneven: bool,
        trouble: Option<Trouble>,
    ) -> Verdict {
        let Some(mut to) = self.choose(to, &[]) else { return Ok(()) };
        let Some(mut from) = self.choose(from, &[to.handle]) else { return Ok(()) };
        if !uneven {
            let len = from.len().min(to.len());
            (from.end, to.end) = (from.start + len, to.start + len);
        }
        self.arm(trouble, Call::Copy);
        self.say(|| format!("s{on}.copy({from}, {to})"));
        let spans = vec![self.argument(&from, Reads), self.argument(&to, Writes)];
        let Some(mut target) = self.buffers[to.handle].take() else { return Ok(()) };
        let Some(source) = &self.buffers[from.handle] else { return Ok(()) };
        let slices = source.slice(from.start..from.end).and_then(|source| {
            let target = target.slice_mut(to.start..to.end)?;
            Ok((source, target))
        });
        let (source, slice) = slices.map_err(|error| error.to_string())?;
        let answer = each!(&mut self.lanes[on], stream => stream.copy(source, slice));
        self.buffers[to.handle] = Some(target);
        let problem = (from.len() != to.len()).then(|| Cause::Lengths(from.len(), to.len()).itself());
        if to.len() == 0 && problem.is_none() {
            return self.nothing(on, answer);
        }
        self.enqueued(on, (Does::Copy, spans), problem, (trouble, Call::Copy), answer)
    }

    pub fn launch(
        &mut self,
        on: usize,
        code: Code,
        ins: [Part; 2],
        outs: [Part; 2],
        scalar: u8,
        trouble: Option<Trouble>,
    ) -> Verdict {
        if code == Code::Panics && !subject::KERNELS_PANIC {
            return Ok(());
        }
        let accesses: &[Access] = match code {
            Code::Add | Code::Rows | Code::Panics => &[Reads, Writes],
            Code::Mix => &[Reads, Reads, Writes],
            Code::Bump | Code::Sparse => &[Both],
            Code::Pair => &[Reads, Both, Writes],
        };
        // Outputs first: an input is any other buffer, and two inputs may be one.
        let mut taken: Vec<usize> = Vec::new();
        let mut chosen: Vec<Option<Chosen>> = vec![None; accesses.len()];
        for (out, at) in outs.iter().zip((0..accesses.len()).filter(|at| accesses[*at] != Reads)) {
            let Some(out) = self.choose(*out, &taken) else { return Ok(()) };
            taken.push(out.handle);
            chosen[at] = Some(out);
        }
        for (input, at) in ins.iter().zip((0..accesses.len()).filter(|at| accesses[*at] == Reads)) {
            let Some(input) = self.choose(*input, &taken) else { return Ok(()) };
            chosen[at] = Some(input);
        }
        let args: Vec<Chosen> = chosen.into_iter().flatten().collect();
        self.launch_on(on, code, &args, accesses, scalar, trouble)
    }

    fn launch_on(
        &mut self,
        on: usize,
        code: Code,
        args: &[Chosen],
        accesses: &[Access],
        scalar: u8,
        trouble: Option<Trouble>,
    ) -> Verdict {
        let number = self.number();
        let len = args.last().map_or(0, Chosen::len);
        let threads = match code {
            Code::Rows => usize::from(scalar % 4) + 1,
            // Half of the launches with nothing to write are made all the same.
            _ => len.max(usize::from(scalar % 2)),
        };
        self.arm(trouble, Call::Launch);
        let words = || args.iter().map(Chosen::to_string).collect::<Vec<_>>().join(", ");
        self.say(|| format!("s{on}.launch({code:?} over {threads}, ({}), {scalar}, no {number})", words()));
        let spans: Vec<_> =
            args.iter().zip(accesses).map(|(chosen, access)| self.argument(chosen, *access)).collect();
        let answer = self.launch_real(on, code, Grid::covering(threads), args, accesses, (scalar, number));
        let answer = answer.ok_or("a buffer is missing")?;
        if threads == 0 {
            return self.nothing(on, answer);
        }
        let uneven = code == Code::Rows && subject::RUNS_IN_CHUNKS && !len.is_multiple_of(threads);
        let problem = uneven.then(|| Cause::Unchunkable(len, threads).itself());
        let does = Does::Launch { code, scalar, number };
        self.enqueued(on, (does, spans), problem, (trouble, Call::Launch), answer)
    }

    fn launch_real(
        &mut self,
        on: usize,
        code: Code,
        grid: Grid,
        args: &[Chosen],
        accesses: &[Access],
        (scalar, number): (u8, u32),
    ) -> Option<dacapo::Result<()>> {
        let mut outs = Vec::new();
        for (chosen, _) in args.iter().zip(accesses).filter(|(_, access)| **access != Reads) {
            outs.push((chosen, self.buffers[chosen.handle].take()?));
        }
        let mut ins = Vec::new();
        for (chosen, _) in args.iter().zip(accesses).filter(|(_, access)| **access == Reads) {
            ins.push(self.buffers[chosen.handle].as_ref()?.slice(chosen.start..chosen.end).ok()?);
        }
        let mut slices = Vec::new();
        for (chosen, buffer) in &mut outs {
            slices.push(buffer.slice_mut(chosen.start..chosen.end).ok()?);
        }
        let kernels = &self.kernels;
        let answer = each!(&mut self.lanes[on], stream => match (code, &ins[..], &mut slices[..]) {
            (Code::Add, [x], [y]) => stream.launch(&kernels.add, grid, (*x, y, u32::from(scalar), Len, Len)),
            (Code::Mix, [x, y], [z]) => stream.launch(&kernels.mix, grid, (*x, *y, z, Len, Len, Len)),
            (Code::Bump, [], [x]) => stream.launch(&kernels.bump, grid, (x, u32::from(scalar), Len)),
            (Code::Pair, [x], [y, z]) => stream.launch(&kernels.pair, grid, (*x, y, z, Len, Len, Len)),
            (Code::Sparse, [], [x]) => stream.launch(&kernels.sparse, grid, (x, u32::from(scalar), Len)),
            (Code::Rows, [x], [y]) => stream.launch(&kernels.rows, grid, (*x, y, Len, Len)),
            (Code::Panics, [x], [y]) => stream.launch(kernels.panics.as_ref()?, grid, (*x, y, number)),
            _ => return None,
        });
        drop(slices);
        for (chosen, buffer) in outs {
            self.buffers[chosen.handle] = Some(buffer);
        }
        Some(answer)
    }

    pub fn host_call(&mut self, on: usize, calls: Calls, trouble: Option<Trouble>) -> Verdict {
        let chosen = match calls {
            Calls::Barrier => None,
            Calls::Reads(part) | Calls::Writes(part) | Calls::Panics(part) => {
                let Some(chosen) = self.choose(part, &[]) else { return Ok(()) };
                Some(chosen)
            }
        };
        self.arm(trouble, Call::HostCall);
        let number = self.number();
        let counter = self.counters.len();
        self.counters.push(Arc::new(AtomicUsize::new(0)));
        let panics = matches!(calls, Calls::Panics(_)).then_some(number);
        let counted = self.counters[counter].clone();
        let call = move || {
            counted.fetch_add(1, Ordering::Relaxed);
            if let Some(number) = panics {
                std::panic::resume_unwind(Box::new(format!("no {number}")));
            }
        };
        let words = chosen.as_ref().map(Chosen::to_string).unwrap_or_default();
        self.say(|| format!("s{on}.host_call({calls:?} {words}), callback {counter}, no {number}"));
        let access = if matches!(calls, Calls::Reads(_)) { Reads } else { Both };
        let spans: Vec<_> = chosen.iter().map(|chosen| self.argument(chosen, access)).collect();
        let answer = match &chosen {
            None => each!(&mut self.lanes[on], stream => stream.host_call(call)),
            Some(chosen) => {
                let Some(buffer) = &mut self.buffers[chosen.handle] else { return Ok(()) };
                let slice = buffer.slice_mut(chosen.start..chosen.end).map_err(|error| error.to_string())?;
                let touches = match access {
                    Reads => Touches::new().reads(&slice),
                    _ => Touches::new().writes(slice),
                };
                each!(&mut self.lanes[on], stream => stream.host_call_with(touches, call))
            }
        };
        self.enqueued(on, (Does::Call { counter, panics }, spans), None, (trouble, Call::HostCall), answer)
    }

    /// An operation without a byte to write: nothing is enqueued, and only the window can speak against it.
    fn nothing(&mut self, on: usize, answer: dacapo::Result<()>) -> Verdict {
        let answer = answer.map_err(|error| Told::of(&error));
        super::driver::same("an operation on nothing", &answer, &self.book.check(on))
    }
}
