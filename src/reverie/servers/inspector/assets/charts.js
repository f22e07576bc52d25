// Charts as SVG that stretches to any width; every chart has its values in a table beside it.

const W = 1000, H = 240;

// Round numbers for an axis that ends at `top`.
function ticksFor(top) {
  const rough = top / 4, power = 10 ** Math.floor(Math.log10(rough || 1));
  const step = [1, 2, 2.5, 5, 10].map((f) => f * power).find((f) => f >= rough) || 1;
  return [0, 1, 2, 3, 4].map((k) => k * step).filter((at) => at <= top);
}

function yAxis(ticks, top, say = short) {
  return h("div", { class: "y", "aria-hidden": "true" }, ticks.map((at) => {
    const label = h("span", null, at ? say(at) : "0");
    label.style.bottom = `${(at / top) * 100}%`;
    return label;
  }));
}

// `marks` are [share of the width, label].
function xAxis(marks) {
  return h("div", { class: "x", "aria-hidden": "true" }, marks.map(([share, label]) => h("span", { left: `${share * 100}%` }, label)));
}

const five = (n) => [...new Set([0, 0.25, 0.5, 0.75, 1].map((share) => Math.round(share * (n - 1))))];
const even = (n) => Array.from({ length: n + 1 }, (_, k) => k / n);
const gridLines = (ticks, top) => ticks.map((at) => svg("path", { class: "grid", d: `M0 ${H - (at / top) * H}H${W}` }));
const drawing = (label, ...parts) => svg("svg", { viewBox: `0 0 ${W} ${H}`, preserveAspectRatio: "none", role: "img", "aria-label": shown(label) }, parts.filter(Boolean));

// Stacked areas: `columns` hold a value of each kind, `edges` the sides of the columns as shares of the width.
function stackedAreas(columns, edges, top, kinds) {
  const sums = columns.map((values) => {
    let sum = 0;
    return kinds.map((_, k) => (sum += values[k]));
  });
  return kinds.map((kind, k) => {
    const points = sums.map((edge, g) => `${g ? "L" : "M"}${(edges[g] * W).toFixed(1)} ${(H - (edge[k] / top) * H).toFixed(1)}H${(edges[g + 1] * W).toFixed(1)}`);
    return svg("path", { class: kind, d: points.length ? `${points.join("")}V${H}H0Z` : "" });
  }).reverse();
}

// A line through [share of the width, value].
function lineThrough(points, top, kind) {
  return svg("path", { class: `stroke ${kind}`, d: points.map(([x, y], k) => `${k ? "L" : "M"}${(x * W).toFixed(1)} ${(H - (Math.min(y, top * 1.02) / top) * H).toFixed(1)}`).join("") });
}

function bars(rows, value, label, isBad = () => false) {
  const n = rows.length || 1, most = Math.max(1e-9, ...rows.map(value));
  const drawn = rows.map((row, k) => svg("path", { class: isBad(row, k) ? "costbad" : "cost", d: `M${((k / n) * W).toFixed(2)} ${H}V${(H - (value(row) / most) * H).toFixed(1)}H${(((k + 0.86) / n) * W).toFixed(2)}V${H}Z` }));
  return h("figure", null, svg("svg", { class: "bars", viewBox: `0 0 ${W} ${H}`, preserveAspectRatio: "none", role: "img", "aria-label": `${label}, at most ${usd(most)}` }, drawn), h("figcaption", null, `${label}; the highest bar is ${usd(most)}.`));
}

// One row of marks above a chart; where they would touch, neighbours share one. `place` is a mark's share of the width.
function lane(name, found, kind, place, say, open) {
  const slots = innerWidth < 600 ? 28 : 70;
  const groups = groupBy(found, (one) => Math.floor(place(one) * slots));
  const marks = [...groups].map(([, group]) => {
    const more = group.length > 1 ? ` (and ${group.length - 1} more near it)` : "";
    const label = shown(`${name}, ${say(group[0])}${more}`).slice(0, 300);
    return h(open ? "button" : "span", {
      type: open ? "button" : null, class: `dot ${kind}${group.some((one) => one.announced === false) ? " loud" : ""}`, title: label, "aria-label": label,
      role: open ? null : "img", tabindex: open ? "-1" : null, left: `${place(group[0]) * 100}%`, onclick: open ? () => open(group[0]) : null,
    });
  });
  return [h("span", { class: "lane" }, name), h("div", { class: "marks", role: "group", "aria-label": `${counted(found.length, "mark")}: ${name}` }, marks)];
}
