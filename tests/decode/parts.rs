//! The arithmetic, each part against what it stands for.

use crate::arithmetic::{LANES, PARTS, exponential, largest, product, soften, sum};

/// The reference of the whole model would not notice an exponential that is wrong where the model seldom goes.
#[test]
fn the_exponential_is_right_to_a_few_units_in_the_last_place_everywhere() {
    for step in -8700..=8800 {
        let x = step as f32 / 100.0;
        let (found, exact) = (f64::from(exponential(x)), f64::from(x).exp());
        assert!((found / exact - 1.0).abs() < 4.0 * f64::from(f32::EPSILON), "{x}: {found} for {exact}");
    }
    assert_eq!(exponential(0.0), 1.0);
    assert_eq!(exponential(-1000.0), 0.0);
    assert_eq!(exponential(f32::NEG_INFINITY), 0.0);
    assert!(exponential(1000.0).is_finite());
}

/// Lengths that fill no part, no lane or no block evenly.
#[test]
fn products_and_sums_leave_nothing_out_whatever_their_length() {
    for n in [0, 1, PARTS - 1, PARTS, PARTS + 1, LANES, 3 * LANES + 5] {
        // Small whole numbers: every order of summation is exact.
        let x: Vec<f32> = (0..n).map(|i| (i % 7) as f32).collect();
        assert_eq!(sum(x.iter().copied()), x.iter().sum::<f32>());
        for (stride, first, columns) in [(1, 0, 1), (40, 0, 40), (100, 31, 64), (100, 97, 3)] {
            let matrix: Vec<f32> = (0..n * stride).map(|i| (i % 5) as f32 - 2.0).collect();
            let mut out = vec![f32::NAN; columns];
            product(&x, &matrix, stride, first, &mut out);
            let column = |column: usize| (0..n).map(|i| x[i] * matrix[i * stride + first + column]).sum();
            assert_eq!(out, (0..columns).map(column).collect::<Vec<f32>>(), "{n} x {columns}");
        }
    }
}

#[test]
fn weights_add_up_to_one_and_keep_the_order_of_their_scores() {
    let mut weights = [-200.0, 1.0, 3.0, 2.0, 3.0];
    soften(&mut weights);
    assert!((weights.iter().sum::<f32>() - 1.0).abs() < 1e-6);
    assert_eq!(weights[0], 0.0);
    assert!(weights[1] < weights[3] && weights[3] < weights[2] && weights[2] == weights[4]);
}

/// A GPU finds the largest in another order; who wins a tie must not depend on it.
#[test]
fn of_equal_logits_the_first_is_chosen() {
    assert_eq!(largest(&[0.0, 2.0, 1.0, 2.0]), 1);
    assert_eq!(largest(&[-1.0, -1.0]), 0);
    assert_eq!(largest(&[f32::NAN, -5.0, f32::NAN]), 1);
}
