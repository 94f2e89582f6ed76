//! Encoding one command.

#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::backend::command::{ArgsRef, Stamp, Work, fits};
use crate::backend::fault::Severity;
use crate::backend::wgpu::landing::Flight;
use crate::backend::wgpu::memory::{Place, WORD};
use crate::backend::wgpu::queue::State;
use crate::backend::wgpu::steps::{Resolver, shape};
use crate::backend::wgpu::{Machine, Wgpu};
use crate::backend::{Call, CommandRef, Fault, Region, outcome};
use crate::layout::Pitch;
use crate::memory::staging::Staged;
use crate::profile::Clock;
use crate::taint;

impl State {
    /// Encodes a command, unless what it reads was never written: then its output was not either.
    ///
    /// # Errors
    /// What the device cannot do; nothing was encoded.
    pub(crate) fn run(&mut self, machine: &Arc<Machine>, command: CommandRef<'_, Wgpu>) -> Result<(), Fault> {
        // A move takes the taint of its source along, whatever that is.
        let moves = matches!(command.job.0, Work::Move);
        let clean = taint::is_clean(command);
        if !clean
            && !moves
            && let Some(cause) = taint::admit(command)
        {
            outcome::skip(command, &cause);
            return Ok(());
        }
        self.encode(machine, command)?;
        if !clean {
            taint::settle_moved(command);
        }
        Ok(())
    }

    fn encode(&mut self, machine: &Arc<Machine>, command: CommandRef<'_, Wgpu>) -> Result<(), Fault> {
        let call = command.job.call();
        match (&command.job.0, command.args.regions) {
            (Work::Write { bytes, pitch }, [to]) => self.write(machine, to, *pitch, bytes),
            (Work::Read { into, pitch }, [from]) => {
                let Some(from) = Place::of(call, from)? else {
                    into.land(|_| ());
                    return Ok(());
                };
                let (flight, first, words) = Flight::new(machine, &from, into.clone(), *pitch)?;
                let commands = self.encoder.commands(machine);
                commands.copy_buffer_to_buffer(&from.memory.buffer, first, &flight.pad, 0, Some(words));
                self.flights.push(flight);
                Ok(())
            }
            (Work::Stamp { at }, _) => self.stamp(machine, at),
            _ => {
                self.resolver(machine).command(command)?;
                self.take_steps(machine);
                Ok(())
            }
        }
    }

    fn write(
        &mut self,
        machine: &Machine,
        to: &Region<Wgpu>,
        pitch: Option<Pitch>,
        bytes: &Staged,
    ) -> Result<(), Fault> {
        let Some(to) = Place::of(Call::Write, to)? else { return Ok(()) };
        let source = bytes.bytes();
        fits(Call::Write, pitch, to.len as usize, source.len())?;
        let (buffer, at) = self.encoder.uploads.put(machine, source)?;
        let mut resolver = self.resolver(machine);
        if pitch.is_none() && to.is_whole_words() {
            resolver.push_copy(&buffer, at, &to);
        } else {
            // The memory that the host writes can be copied from, in words, and is bound to nothing.
            resolver.scratch.restart();
            let words = (source.len() as u64).next_multiple_of(WORD);
            resolver.scratch.reserve(machine, words);
            let scratch = resolver.scratch.provide(machine)?;
            resolver.push_copy(&buffer, at, &Place::start_of(&scratch, words));
            resolver.scatter(&Place::start_of(&scratch, source.len() as u64), &to, pitch)?;
        }
        self.take_steps(machine);
        Ok(())
    }

    fn stamp(&mut self, machine: &Machine, at: &Arc<Stamp>) -> Result<(), Fault> {
        match machine.clock {
            Clock::Host => self.stamps.push(at.clone()),
            Clock::Device => {
                let probe = machine.clockwork.probe(machine)?;
                self.readings.push(probe.encode(self.encoder.commands(machine), at));
            }
        }
        Ok(())
    }

    pub(crate) fn resolver<'a>(&'a mut self, machine: &'a Machine) -> Resolver<'a> {
        // What a command that failed left behind is nothing to encode.
        self.steps.clear();
        Resolver { machine, groups: &mut self.groups, scratch: &mut self.scratch, steps: &mut self.steps }
    }

    fn take_steps(&mut self, machine: &Machine) {
        let State { steps, encoder, .. } = self;
        steps.iter().for_each(|step| encoder.step(machine, step));
        steps.clear();
    }
}

impl Resolver<'_> {
    /// The steps of a command that is nothing but dispatches and copies on the device.
    pub(crate) fn command(&mut self, command: CommandRef<'_, Wgpu>) -> Result<(), Fault> {
        let call = command.job.call();
        match (&command.job.0, command.args.regions) {
            (Work::Launch { kernel, extent }, _) => self.launch(kernel, shape(extent)?, command.args),
            (Work::LaunchIndirect { kernel, .. }, [regions @ .., counts]) => {
                let blocks = self.count(counts)?;
                self.launch(kernel, blocks, ArgsRef { regions, scalars: command.args.scalars })
            }
            (Work::Copy | Work::Move, [from, to]) => match (Place::of(call, from)?, Place::of(call, to)?) {
                (Some(from), Some(to)) => self.copy(&from, &to),
                (None, None) => Ok(()),
                _ => Err(Fault::new(call, Severity::Call, "a copy between ranges of two lengths")),
            },
            (Work::Fill, [to]) => match Place::of(call, to)? {
                Some(to) => self.fill(&to, command.args.scalars),
                None => Ok(()),
            },
            (Work::Raw { section }, [to]) => section.resolve(self, to),
            _ => Err(Fault::new(call, Severity::Call, "an operation without its memory")),
        }
    }
}
