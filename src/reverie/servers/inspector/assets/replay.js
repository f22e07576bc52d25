// A replay: the same requests under several policies, their cost, and each session's window under each of them.

const KINDS = { read: "read from the cache", written: "written to the cache", uncached: "uncached" };

function replayView(film, state) {
  const draw = (data) => [h("p", { class: "big" }, data.headline[0], h("b", null, data.headline[1]), data.headline[2]), h("p", { class: "soft" }, data.about), ...replayParts(data)];
  if (!state.replay) return remoteView(state, "Replay", "/replay", () => ({ session: state.live.name }), draw);
  return h("section", { class: "view", "aria-label": "Replay" }, replayParts(state.replay));
}

function replayParts(data) {
  const policies = Object.entries(data.policies).map(([name, one]) => ({ name, ...one })).sort((a, b) => a.input_usd / (a.sessions || 1) - b.input_usd / (b.sessions || 1));
  const sessions = data.sessions.filter((one) => one.outcomes.some((each) => each.requests));
  const body = h("div"), at = { session: 0, policy: data.policies[data.ours] ? data.ours : policies[0]?.name, byTime: false };
  const show = () => body.replaceChildren(...(sessions.length ? replaySession(data, sessions, at, show) : [h("p", { class: "empty" }, "Nothing was replayed.")]));
  show();
  return [
    h("h2", null, "Policies"),
    h("p", { class: "lead" }, "The cost of the same requests under each policy, with the cost of reading back content that was removed."),
    policies.filter((one) => one.invalid_requests).map((one) => h("p", { class: "bad" }, `${one.name}: a provider would refuse ${counted(one.invalid_requests, "request")}.`)),
    policyTable(data, policies),
    layerTable(policies.filter((one) => (data.policies[data.ours]?.layers && Object.keys(data.policies[data.ours].layers).length ? one.name === data.ours : true))),
    breakTable(data.breaks),
    sessions.length > 1 ? [h("h2", null, "Sessions"), sessionTable(data, sessions, (k) => { at.session = k; show(); body.scrollIntoView(); })] : null,
    h("h2", null, sessions.length > 1 ? "Session by session" : "The session"), body,
    data.notes.length ? lazy(counted(data.notes.length, "note"), () => h("ul", null, data.notes.map((note) => h("li", { class: "soft" }, note)))) : null,
  ].flat(Infinity).filter(Boolean);
}

const ratio = (x) => (x === null || x === undefined ? "–" : x.toFixed(3));

function policyTable(data, policies) {
  const most = Math.max(1e-9, ...policies.filter((one) => one.name !== "uncached").map((one) => one.input_usd)), every = Math.max(0, ...policies.map((one) => one.sessions));
  const name = (one) => h("span", null, one.name, one.name === data.cheapest ? h("span", { class: "tag" }, "cheapest") : null, one.sessions < every ? h("span", { class: "tag calm" }, `${one.sessions} of ${every} sessions`) : null);
  return table("Policies", [["Policy", name], ["Input", (one) => usd(one.input_usd)], ["Compared", (one) => meter(one.input_usd / most, one.name === data.cheapest ? "fill" : "plainfill")], ["÷ uncached", (one) => ratio(one.cost_vs_uncached)], ["÷ append-only", (one) => ratio(one.cost_vs_append_only)], ["Read", (one) => short(one.cache_read)], ["Written", (one) => short(one.cache_write)], ["Uncached", (one) => short(one.uncached)], ["Breaks", (one) => count(one.breaks)], ["Read-backs", (one) => count(one.read_backs)], ["Peak", (one) => short(one.peak_window)], ["Mean", (one) => short(one.mean_window)]], policies);
}

function layerTable(policies) {
  const rows = policies.flatMap((one) => Object.entries(one.layers).map(([layer, did]) => ({ policy: one.name, layer, ...did })));
  if (!rows.length) return null;
  const said = policies.filter((one) => one.removed_tokens).map((one) => h("p", { class: "lead" }, `Of ${count(one.removed_tokens)} tokens that ${one.name} removed from view, ${percent(one.needed_share)} were needed later; ${counted(one.read_backs, "read-back")} cost ${usd(one.read_back_usd)}.`));
  return [h("h2", null, "Actions of the layers"), said, table("Layers", [["Layer", (row) => row.layer], ["Policy", (row) => row.policy, true], ["Acts", (row) => count(row.acts)], ["Items", (row) => count(row.items)], ["Tokens freed", (row) => count(row.tokens)]], rows)];
}

function breakTable(rows) {
  if (!rows.length) return null;
  const columns = [["Reason", (row) => row.reason], ["Policy", (row) => row.policy, true], ["Price", (row) => usd(row.usd)], ["Breaks", (row) => count(row.count)], ["Tokens", (row) => count(row.tokens)], ["Unannounced", (row) => (row.unannounced ? h("b", { class: "bad" }, count(row.unannounced)) : "0")]];
  return [h("h2", null, "Cache breaks"), h("p", { class: "lead" }, "A break is a cached part of the prompt that was billed again. Unannounced: no decision in the log announced it."), table("Breaks by reason", columns, rows.slice(0, 8)), rows.length > 8 ? lazy(`and ${count(rows.length - 8)} cheaper ones`, () => table("Further breaks by reason", columns, rows.slice(8))) : null];
}

function sessionTable(data, sessions, open) {
  const cost = (one, policy) => one.outcomes.find((each) => each.policy === policy)?.usd;
  const named = [data.base, data.ours].filter((name) => data.policies[name]);
  return table("Sessions", [["Session", (one) => one.file || one.session], ["Requests", (one) => count(Math.max(...one.outcomes.map((each) => each.requests)))], ...named.map((name) => [name, (one) => usd(cost(one, name))]), ["÷ append-only", (one) => ratio(cost(one, data.base) ? cost(one, data.ours) / cost(one, data.base) : null)], ["Peak window", (one) => short(Math.max(...one.outcomes.map((each) => each.peak)))]], sessions, (one, k) => open(k));
}

function replaySession(data, sessions, at, again) {
  const one = sessions[at.session], outcome = one.outcomes.find((each) => each.policy === at.policy && each.requests) || one.outcomes.find((each) => each.requests);
  const pick = (label, isOn, act) => h("button", { type: "button", "aria-pressed": String(isOn), onclick: () => { act(); again(); } }, label);
  const choose = sessions.length > 1 ? h("p", null, h("label", null, "Session ", h("select", { onchange: (event) => { at.session = Number(event.target.value); again(); } }, sessions.map((each, k) => h("option", { value: k, selected: k === at.session }, (each.file || each.session).slice(0, 90)))))) : h("p", { class: "soft", dir: "auto" }, [one.file, one.session && !one.file.includes(one.session) ? one.session : ""].filter(Boolean).join(" · "));
  return [
    choose,
    h("div", { class: "choice", role: "group", "aria-label": "policy" }, one.outcomes.filter((each) => each.requests).map((each) => pick(each.policy, each === outcome, () => (at.policy = each.policy)))),
    h("div", { class: "choice", role: "group", "aria-label": "axis" }, pick("by request", !at.byTime, () => (at.byTime = false)), pick("by time", at.byTime, () => (at.byTime = true))),
    h("h3", null, `Window under ${outcome.policy}`), windowChart(data, one, outcome, at.byTime),
    h("h3", null, "Input cost so far"), replayCosts(one, at.byTime),
    h("h3", null, `Breaks under ${outcome.policy}`),
    outcome.breaks.length ? [table("Breaks", [["Request", (row) => count(row.n + 1)], ["Price", (row) => usd(row.usd)], ["Tokens", (row) => count(row.tokens)], ["Reason", (row) => [row.reason, row.announced ? null : h("span", { class: "tag loud" }, "unannounced")], true]], outcome.breaks), outcome.break_count > outcome.breaks.length ? h("p", { class: "soft" }, `and ${count(outcome.break_count - outcome.breaks.length)} cheaper ones`) : null] : h("p", { class: "empty" }, "None."),
  ].flat(Infinity).filter(Boolean);
}

// The place of a request on the axis, as a share of its width.
function placing(outcome, byTime) {
  const points = outcome.points, last = points[points.length - 1], from = byTime ? points[0][1] : points[0][0], to = byTime ? last[1] : outcome.requests + points[0][0];
  return (n, time) => (to > from ? Math.min(1, Math.max(0, ((byTime ? time : n) - from) / (to - from))) : 0);
}

const windowOf = (point) => point[2] + point[3] + point[4];
const axisMarks = (outcome, byTime, place) => five(outcome.points.length).map((k) => [place(outcome.points[k][0], outcome.points[k][1]), byTime ? span(outcome.points[k][1] - outcome.points[0][1]) : count(outcome.points[k][0] + 1)]);

function windowChart(data, one, outcome, byTime) {
  const place = placing(outcome, byTime), points = outcome.points, base = one.outcomes.find((each) => each.policy === data.base && each !== outcome && each.requests);
  const top = Math.max(1, ...one.outcomes.map((each) => each.peak)) * 1.04, ticks = ticksFor(top), edges = [...points.map((point) => place(point[0], point[1])), 1];
  const label = `Window over ${byTime ? "time" : "requests"} under ${outcome.policy}, at most ${count(outcome.peak)} tokens. The table below has all values.`;
  const compared = base ? lineThrough(base.points.map((point) => [placing(base, byTime)(point[0], point[1]), windowOf(point)]), top, "base") : null;
  const rows = [...groupBy(outcome.acts, (act) => act.layer)].map(([layer, found], k) => lane(layer, found, `l${k % 7}`, (act) => place(act.n, act.at), (act) => `request ${act.n + 1}: ${act.reason}, ${count(act.tokens)} tokens`));
  if (outcome.breaks.length) rows.push(lane("cache breaks", outcome.breaks, "broke", (each) => place(each.n, each.at), (each) => `request ${each.n + 1}: ${each.reason}, ${usd(each.usd)}`));
  return h("div", null,
    h("ul", { class: "legend" }, Object.entries(KINDS).map(([kind, text]) => h("li", null, h("i", { class: `c-${kind}` }), text)), base ? h("li", null, h("i", { class: "dash" }), `${data.base}, to compare`) : null),
    h("div", { class: "chart" }, rows, yAxis(ticks, top), h("div", { class: "plot" }, drawing(label, ...stackedAreas(points.map((point) => point.slice(2, 5)), edges, top, Object.keys(KINDS).map((kind) => `c-${kind}`)), ...gridLines(ticks, top), compared)), h("div", { class: "under" }, xAxis(axisMarks(outcome, byTime, place)))),
    lazy("The chart as a table", () => table("Window of each request", [["Request", (point) => count(point[0] + 1)], ["Read", (point) => count(point[2])], ["Written", (point) => count(point[3])], ["Uncached", (point) => count(point[4])], ["Sum", (point) => count(windowOf(point))], ["Input", (point) => usd(point[5])]], points)));
}

function replayCosts(one, byTime) {
  const found = one.outcomes.filter((each) => each.requests).sort((a, b) => a.usd - b.usd), dear = found.filter((each) => each.policy !== "uncached" || found.length === 1);
  const top = Math.max(1e-9, ...dear.map((each) => each.usd)) * 1.05, ticks = ticksFor(top), place = placing(found[0], byTime);
  const curves = found.map((each, k) => {
    let sum = 0;
    const own = placing(each, byTime), points = each.points.map((point) => [own(point[0], point[1]), (sum += point[5])]);
    return lineThrough([...points, [1, sum + each.beside_usd]], top, `s${k % 8}`);
  });
  return h("div", null,
    h("div", { class: "chart" }, yAxis(ticks, top, (at) => `$${at >= 1 ? at.toFixed(1) : String(Number(at.toPrecision(2)))}`), h("div", { class: "plot" }, drawing(`Input cost so far of ${counted(found.length, "policy").replace("policys", "policies")}`, ...gridLines(ticks, top), ...curves)), h("div", { class: "under" }, xAxis(axisMarks(found[0], byTime, place)))),
    h("ul", { class: "legend" }, found.map((each, k) => h("li", null, h("i", { class: `line s${k % 8}` }), `${each.policy} `, h("b", null, usd(each.usd)), each.usd > top ? " (leaves the chart)" : ""))),
    lazy("The chart as a table", () => table("Input cost", [["Policy", (each) => each.policy], ["Requests", (each) => count(each.requests)], ["Input", (each) => usd(each.usd)], ["of it beside the requests", (each) => usd(each.beside_usd)]], found)));
}
