//! The plot: ADD and DEL one by one, median and p90, on a logarithmic scale.

use std::fmt::Write;

use crate::measure::Samples;
use crate::report::seconds;

const WIDTH: f64 = 760.0;
const LEFT: f64 = 210.0;
const ROW: f64 = 22.0;
/// Milliseconds at the left and the right end of the scale.
const SCALE: [f64; 2] = [0.1, 1000.0];

/// The picture as SVG.
pub fn svg(samples: &Samples) -> String {
    let mut body = String::new();
    let mut y = 30.0;
    for verb in ["ADD", "DEL"] {
        let _ = writeln!(body, r#"<text x="8" y="{y}" font-weight="bold">{verb}, one by one</text>"#);
        y += ROW;
        for (what, series) in samples.0.iter().filter(|(what, _)| what.width == 1 && what.verb == verb) {
            let [p50, p90] = [50, 90].map(|percent| seconds(series.percentile(percent)) * 1000.0);
            let (start, middle, end) = (x(SCALE[0]), x(p50), x(p90));
            let (bar, whisker, label) = (y - 11.0, y - 5.0, end + 6.0);
            let name = format!("{}, {} pods", what.contender, what.level);
            let colour = if what.contender.starts_with("hostcni") { "#2a6f97" } else { "#9aa5b1" };
            let _ = write!(
                body,
                "<text x=\"{}\" y=\"{y}\" text-anchor=\"end\">{name}</text>\n\
                 <rect x=\"{start}\" y=\"{bar}\" width=\"{:.1}\" height=\"13\" fill=\"{colour}\"/>\n\
                 <line x1=\"{middle:.1}\" x2=\"{end:.1}\" y1=\"{whisker}\" y2=\"{whisker}\" stroke=\"black\"/>\n\
                 <text x=\"{label:.1}\" y=\"{y}\">{p50:.2}</text>\n",
                LEFT - 6.0,
                middle - start,
            );
            y += ROW;
        }
        y += ROW / 2.0;
    }
    for ms in [0.1, 1.0, 10.0, 100.0, 1000.0] {
        let (at, bottom) = (x(ms), y - ROW);
        let _ = write!(
            body,
            "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"36\" y2=\"{bottom}\" stroke=\"#dddddd\"/>\n\
             <text x=\"{at:.1}\" y=\"{y}\" text-anchor=\"middle\">{ms} ms</text>\n"
        );
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" font-family=\"sans-serif\" \
         font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{body}</svg>\n",
        WIDTH + 60.0,
        y + ROW
    )
}

fn x(ms: f64) -> f64 {
    let [low, high] = SCALE.map(f64::log10);
    LEFT + (ms.log10().clamp(low, high) - low) / (high - low) * (WIDTH - LEFT)
}
