//! Scalars of a launch: from the library's packed bytes to the shader's struct.

#![forbid(unsafe_code)]

use smallvec::SmallVec;

/// How the scalars of a kernel get to its shader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Params {
    pub(crate) passing: Passing,
    /// What the shader is given: a multiple of 4, of 16 for a uniform.
    pub(crate) bytes: usize,
    pub(crate) fields: Box<[Field]>,
}

/// By which way scalars go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passing {
    /// There are none.
    Nothing,
    /// With the pass.
    Immediates,
    /// In a buffer.
    Uniform,
}

/// One scalar, in the order of the signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    /// Where it is in the shader's struct.
    pub(crate) at: usize,
    pub(crate) value: Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// So many bytes, as they are.
    Bytes(usize),
    /// A count, of 64 bits in the library and of 32 in the shader.
    Count,
}

impl Params {
    pub(crate) fn nothing() -> Self {
        Params { passing: Passing::Nothing, bytes: 0, fields: Box::default() }
    }

    /// The struct's bytes. What lies between its members is zero.
    pub(crate) fn lay_out(&self, packed: &[u8]) -> SmallVec<[u8; 64]> {
        let mut bytes = SmallVec::from_elem(0, self.bytes);
        let mut rest = packed;
        for field in &self.fields {
            let taken = match field.value {
                Value::Bytes(len) => len,
                Value::Count => size_of::<u64>(),
            };
            let Some((value, behind)) = rest.split_at_checked(taken) else {
                debug_assert!(false, "a launch gathers the scalars of its own signature");
                break;
            };
            rest = behind;
            match field.value {
                Value::Bytes(_) => put(&mut bytes, field.at, value),
                Value::Count => put(&mut bytes, field.at, &count(value).to_ne_bytes()),
            }
        }
        bytes
    }
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    if let Some(place) = bytes.get_mut(at..at + value.len()) {
        place.copy_from_slice(value);
    }
}

/// No binding has so many elements that they are more than a `u32` can say; one that had would lose those behind.
fn count(value: &[u8]) -> u32 {
    let count = value.try_into().map_or(0, u64::from_ne_bytes);
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scalars that are packed as the host has them would reach a shader whose struct has gaps at other members.
    #[test]
    fn scalars_go_to_the_offsets_of_their_members() {
        let fields =
            [(0, Value::Bytes(4)), (16, Value::Bytes(12)), (28, Value::Count), (32, Value::Bytes(4))];
        let fields = fields.map(|(at, value)| Field { at, value });
        let params = Params { passing: Passing::Uniform, bytes: 48, fields: fields.into() };
        let mut packed = vec![1; 4];
        packed.extend([2; 12]);
        packed.extend(0x0807_0605u64.to_ne_bytes());
        packed.extend([3; 4]);
        let mut expected = [0; 48];
        expected[..4].fill(1);
        expected[16..28].fill(2);
        expected[28..32].copy_from_slice(&0x0807_0605u32.to_ne_bytes());
        expected[32..36].fill(3);
        assert_eq!(params.lay_out(&packed).as_slice(), expected);
    }

    /// A count that lost its upper half would be small by chance, or zero.
    #[test]
    fn a_count_that_no_u32_can_say_is_the_largest() {
        let fields = Box::new([Field { at: 0, value: Value::Count }]);
        let params = Params { passing: Passing::Immediates, bytes: 4, fields };
        assert_eq!(params.lay_out(&(1u64 << 32).to_ne_bytes()).as_slice(), u32::MAX.to_ne_bytes());
    }
}
