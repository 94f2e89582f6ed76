// Arithmetic that is rounded as IEEE 754 says, which WGSL alone does not promise: a product may be added to something without
// being rounded in between, and quotients and roots may be off by a few units in the last place.
//
// Where a number, or the result, is not a normal one, they are what the device makes of them.

// 0, which no compiler can know. An entry point sets it, from the highest bit of a length.
var<private> zero: u32;

// A product that is rounded before it is added to anything: what is done to its bits in between says so.
fn mul(a: f32, b: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(a * b) ^ zero);
}

// A quotient: long division, to one digit more than there are; what is left is never exactly half of the last one.
fn over(a: f32, b: f32) -> f32 {
    let exponents = vec2<i32>(exponent(a), exponent(b));
    if (any(exponents == vec2<i32>(0)) || any(exponents == vec2<i32>(255))) {
        return a / b;
    }
    var rest = significand(a);
    let divisor = significand(b);
    var result = exponents.x - exponents.y + 127;
    if (rest < divisor) {
        rest <<= 1u;
        result -= 1;
    }
    if (result < 1 || result > 253) {
        return a / b;
    }
    var digits = 0u;
    for (var i = 0u; i < 25u; i++) {
        let fits = rest >= divisor;
        digits = (digits << 1u) | u32(fits);
        rest = (rest - select(0u, divisor, fits)) << 1u;
    }
    let sign = (bitcast<u32>(a) ^ bitcast<u32>(b)) & 0x80000000u;
    return bitcast<f32>(sign | ((u32(result - 1) << 23u) + ((digits + 1u) >> 1u)));
}

// A square root, digit by digit, to one more than there are; what is left is never exactly half of the last one.
fn root(a: f32) -> f32 {
    let power = exponent(a);
    if (a <= 0.0 || power == 0 || power == 255) {
        return sqrt(a);
    }
    // 26 digits, times a power of 4.
    let odd = u32(power) & 1u;
    let radicand = significand(a) << (2u - odd);
    var rest = 0u;
    var digits = 0u;
    for (var i = 0u; i < 25u; i++) {
        // Two digits at a time from the top, then zeros.
        let next = select(0u, (radicand >> (24u - 2u * min(i, 12u))) & 3u, i < 13u);
        rest = (rest << 2u) | next;
        let trial = (digits << 2u) | 1u;
        let fits = rest >= trial;
        rest -= select(0u, trial, fits);
        digits = (digits << 1u) | u32(fits);
    }
    // Half the exponent of the radicand's power, and the places of the digits.
    let result = (power - 152 + i32(odd)) / 2 - 11 + 150;
    return bitcast<f32>((u32(result - 1) << 23u) + ((digits + 1u) >> 1u));
}

fn exponent(a: f32) -> i32 {
    return i32((bitcast<u32>(a) >> 23u) & 255u);
}

fn significand(a: f32) -> u32 {
    return (bitcast<u32>(a) & 0x7fffffu) | 0x800000u;
}
