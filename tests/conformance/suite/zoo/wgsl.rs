//! The zoo's kernels as WGSL: from the text that is their source in CUDA C++, where that keeps to what both have.
//!
//! That is: buffers of numbers, lengths (`u64`, which are 32 bits here) and scalars of 4 bytes as parameters; and
//! statements of assignments, `if`s and `for`s in braces, with conversions written as calls (`unsigned(i)`) and
//! without `?:`. An element that is smaller than a word is read and written through functions that know which part of
//! its word it is, and one of 8 bytes is read by its lower half.

/// A module with one kernel, which has `body` and the variables of every body; nothing, if a parameter has no type in WGSL.
pub fn module(params: &str, body: &str) -> Option<String> {
    let params: Vec<Param> = params.split(',').map(Param::of).collect::<Option<_>>()?;
    let body = translated(&params, body);
    let (buffers, scalars): (Vec<&Param>, Vec<&Param>) = params.iter().partition(|param| param.is_buffer);
    let mut text = String::new();
    for (at, buffer) in buffers.iter().enumerate() {
        let access = if buffer.is_written { "read_write" } else { "read" };
        let Param { name, scalar, .. } = buffer;
        text +=
            &format!("@group(0) @binding({at}) var<storage, {access}> {name}: array<{}>;\n", scalar.stored());
        text += &buffer.functions(&body);
    }
    if scalars.iter().any(|param| param.scalar == Scalar::Camera) {
        text += "struct Camera { at: vec3<f32>, id: u32 }\n";
    }
    if !scalars.is_empty() {
        let member = |param: &&Param| format!("{}: {}", param.name, param.scalar.name());
        let members = scalars.iter().map(member).collect::<Vec<_>>().join(", ");
        text += &format!("struct Scalars {{ {members} }}\n");
        text += &format!("@group(0) @binding({}) var<uniform> scalars: Scalars;\n", buffers.len());
    }
    let unpacked: String =
        scalars.iter().map(|Param { name, .. }| format!("let {name} = scalars.{name};\n")).collect();
    Some(format!(
        "{text}fn when(condition: bool, n: u32) -> u32 {{ return select(0u, n, condition); }}
        @compute @workgroup_size({THREADS})
        fn kernel(
            @builtin(workgroup_id) group: vec3<u32>,
            @builtin(num_workgroups) groups: vec3<u32>,
            @builtin(local_invocation_index) thread: u32,
        ) {{
            {unpacked}
            let first = ((group.z * groups.y + group.y) * groups.x + group.x) * {THREADS}u + thread;
            let stride = groups.x * groups.y * groups.z * {THREADS}u;
            {body}
        }}\n"
    ))
}

/// The body that does another one for every `i` below `count`.
///
/// Where that writes elements smaller than a word, a thread has all of a word, for two that wrote one would lose what one of
/// them wrote; and it writes the word once.
pub fn each(params: &str, count: &str, body: &str) -> String {
    let params: Vec<Param> = params.split(',').filter_map(Param::of).collect();
    let parts =
        params.iter().filter(|param| param.is_buffer && param.is_written && param.scalar == Scalar::Byte);
    let parts: Vec<&str> = parts.map(|param| param.name).collect();
    if parts.is_empty() {
        return format!("u64 count = {count}; for (u64 i = first; i < count; i += stride) {{ {body} }}");
    }
    let all = |does: &str| parts.iter().map(|name| format!("{does} {name};")).collect::<String>();
    let (load, store) = (all("load"), all("store"));
    format!(
        "u64 count = {count};
        for (u64 word = first; word < (count + 3ull) / 4ull; word += stride) {{
            {load}
            for (u64 i = 4ull * word; i < min(4ull * word + 4ull, count); i++) {{ {body} }}
            {store}
        }}"
    )
}

/// Threads of a block, of a program that says nothing.
const THREADS: u32 = 256;

#[derive(Clone, Copy, PartialEq)]
enum Scalar {
    Float,
    Word,
    Byte,
    Short,
    Long,
    /// A word that several threads write.
    Atomic,
    Camera,
}

impl Scalar {
    fn of(name: &str) -> Option<Self> {
        Some(match name {
            "float" => Scalar::Float,
            "unsigned" => Scalar::Word,
            "u8" => Scalar::Byte,
            "u16" => Scalar::Short,
            "u64" => Scalar::Long,
            "atomic" => Scalar::Atomic,
            "Camera" => Scalar::Camera,
            _ => return None,
        })
    }

    /// The type of a variable.
    fn name(self) -> &'static str {
        match self {
            Scalar::Float => "f32",
            Scalar::Camera => "Camera",
            _ => "u32",
        }
    }

    /// The type of an element of a buffer.
    fn stored(self) -> &'static str {
        match self {
            Scalar::Float => "f32",
            Scalar::Word | Scalar::Byte | Scalar::Short => "u32",
            Scalar::Long => "vec2<u32>",
            Scalar::Atomic => "atomic<u32>",
            Scalar::Camera => "Camera",
        }
    }

    fn is_part_of_a_word(self) -> bool {
        matches!(self, Scalar::Byte | Scalar::Short)
    }

    /// Whether an element is read and written through functions.
    fn is_wrapped(self) -> bool {
        self.is_part_of_a_word() || self == Scalar::Long
    }
}

struct Param<'a> {
    name: &'a str,
    scalar: Scalar,
    is_buffer: bool,
    is_written: bool,
}

impl<'a> Param<'a> {
    /// Nothing, where WGSL has no such thing.
    fn of(text: &'a str) -> Option<Self> {
        let (ty, name) = text.trim().rsplit_once(' ')?;
        let (ty, is_written) = match ty.strip_prefix("const ") {
            Some(ty) => (ty, false),
            None => (ty, true),
        };
        let is_buffer = ty.ends_with('*');
        let scalar = Scalar::of(ty.trim_end_matches('*'))?;
        let fits =
            is_buffer || matches!(scalar, Scalar::Float | Scalar::Word | Scalar::Long | Scalar::Camera);
        fits.then_some(Param { name, scalar, is_buffer, is_written })
    }

    /// Those that `body` uses of the functions over its elements.
    fn functions(&self, body: &str) -> String {
        let name = self.name;
        let (bits, per_word) = match self.scalar {
            Scalar::Byte => (8, 4),
            Scalar::Short => (16, 2),
            Scalar::Long => return format!("fn {name}_at(i: u32) -> u32 {{ return {name}[i].x; }}\n"),
            _ => return String::new(),
        };
        let mask = (1u32 << bits) - 1;
        let shift = format!("({bits}u * (i % {per_word}u))");
        let mut text = String::new();
        let mut word = format!("{name}[i / {per_word}u]");
        if body.contains(&format!("{name}_word")) {
            word = format!("{name}_word");
            text += &format!("var<private> {word}: u32;\n");
        }
        text += &format!("fn {name}_at(i: u32) -> u32 {{ return ({word} >> {shift}) & {mask}u; }}\n");
        if body.contains(&format!("{name}_put(")) {
            text += &format!(
                "fn {name}_put(i: u32, value: u32) {{
                    {word} = ({word} & ~({mask}u << {shift})) | ((value & {mask}u) << {shift});
                }}\n"
            );
        }
        if body.contains(&format!("{name}_around(")) {
            text += &format!(
                "fn {name}_around(n: u32, i: u32) -> u32 {{
                    if (n == 0u) {{ return 9u; }}
                    return {name}_at(i % n);
                }}\n"
            );
        }
        text
    }
}

/// The body in WGSL.
fn translated(params: &[Param], body: &str) -> String {
    let tokens = tokens(body);
    let mut rest = Rest { tokens: &tokens, params };
    let mut text = String::new();
    while !rest.tokens.is_empty() {
        text += &rest.next();
    }
    text
}

/// What is left to be translated.
struct Rest<'t, 'a> {
    tokens: &'t [&'a str],
    params: &'t [Param<'a>],
}

impl<'a> Rest<'_, 'a> {
    fn next(&mut self) -> String {
        match self.tokens {
            ["const", ..] => {
                self.take();
                String::new()
            }
            // An element of a buffer that repeats.
            ["at", "(", buffer, ",", ..] => {
                self.tokens = &self.tokens[4..];
                format!("{buffer}_around(")
            }
            ["load", buffer, ";", ..] => {
                self.tokens = &self.tokens[3..];
                format!("{buffer}_word = {buffer}[word];")
            }
            ["store", buffer, ";", ..] => {
                self.tokens = &self.tokens[3..];
                format!("{buffer}[word] = {buffer}_word;")
            }
            [ty, name, "=", ..] if Scalar::of(ty).is_some() => {
                self.tokens = &self.tokens[3..];
                format!("var {name}: {} = ", Scalar::of(ty).map_or("", Scalar::name))
            }
            [ty, "(", ..] if Scalar::of(ty).is_some() => {
                let ty = Scalar::of(self.take()).map_or("", Scalar::name);
                ty.to_owned()
            }
            [buffer, "[", ..] if self.wraps(buffer) => self.element(buffer),
            _ => format!("{} ", self.take().replace("ull", "u")),
        }
    }

    /// An element of a buffer that has functions for it: what is read, or the whole assignment.
    fn element(&mut self, buffer: &str) -> String {
        self.tokens = &self.tokens[2..];
        let index = self.until("]");
        let operator = match self.tokens {
            [operator, ..] if *operator != "==" && operator.ends_with('=') => operator.trim_end_matches('='),
            _ => return format!("{buffer}_at({index})"),
        };
        self.take();
        let value = self.until(";");
        match operator {
            "" => format!("{buffer}_put({index}, {value});"),
            _ => format!("{buffer}_put({index}, {buffer}_at({index}) {operator} ({value}));"),
        }
    }

    /// What comes before `end`, which is skipped.
    fn until(&mut self, end: &str) -> String {
        let mut text = String::new();
        while !self.tokens.is_empty() && self.tokens[0] != end {
            text += &self.next();
        }
        self.take();
        text
    }

    fn take(&mut self) -> &'a str {
        let (first, rest) = self.tokens.split_first().expect("a statement that has an end");
        self.tokens = rest;
        first
    }

    fn wraps(&self, name: &str) -> bool {
        self.params.iter().any(|param| param.is_buffer && param.name == name && param.scalar.is_wrapped())
    }
}

/// Words and numbers, and operators, each as long as it can be.
fn tokens(mut text: &str) -> Vec<&str> {
    const OPERATORS: [&str; 13] =
        ["<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "+=", "*=", "^=", "|=", "++"];
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    let mut tokens = Vec::new();
    loop {
        text = text.trim_start();
        let Some(first) = text.chars().next() else { return tokens };
        let long = OPERATORS.iter().find(|operator| text.starts_with(**operator));
        let len = match long {
            Some(operator) => operator.len(),
            None if is_word(first) => text.find(|c| !is_word(c)).unwrap_or(text.len()),
            None => first.len_utf8(),
        };
        let (token, rest) = text.split_at(len);
        tokens.push(token);
        text = rest;
    }
}
