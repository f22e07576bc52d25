// The film: the window by category over all requests, the acts of the layers and the breaks of the cache on it.

const LABELS = {
  beside: "system and tools",
  human: "human",
  context: "added context",
  assistant: "assistant",
  local_command: "local command",
  tool_requests: "tool requests",
  tool_results: "tool results",
  other: "other",
};
const PAUSE = 300; // seconds: the shortest lifetime of a cache

function filmView(film, state) {
  const scrub = h("input", {
    type: "range", min: 0, max: Math.max(0, film.requests.length - 1), value: state.n, class: "scrub",
    "aria-label": "request", oninput: (event) => state.go(Number(event.target.value)),
  });
  const cursor = h("i", { class: "cursor" }), n = Math.max(1, film.requests.length);
  scrub.style.marginLeft = `calc(${50 / n}% - 8px)`; // so that its thumb, 16 pixels wide, is below the cursor
  scrub.style.width = `calc(${100 - 100 / n}% + 16px)`;
  const panel = h("div", { class: "panel", "aria-live": "polite" });
  if (!film.requests.length) return h("section", { class: "view", "aria-label": "Film" }, h("p", { class: "lead" }, "This session has no request yet."));
  const view = h(
    "section",
    { class: "view", "aria-label": "Film" },
    h("p", { class: "lead" }, "The window of each request by category. Move through the session with the slider or the arrow keys; a mark opens what happened there."),
    legend(film),
    h("div", { class: "chart" }, lanes(film, state), yAxis(film.ticks, film.top), h("div", { class: "plot" }, areas(film), cursor), h("div", { class: "under" }, scrub, xAxis(five(film.requests.length).map((k) => [position(film, k), count(k + 1)])))),
    panel,
    lazy("The chart as a table", () => windowTable(film, state)),
  );
  view.update = () => {
    scrub.value = state.n;
    scrub.setAttribute("aria-valuetext", `request ${state.n + 1} of ${film.requests.length}, ${count(film.totals[state.n])} tokens`);
    cursor.style.left = `${position(film, state.n) * 100}%`;
    panel.replaceChildren(...requestPanel(film, state));
  };
  view.update();
  return view;
}

const position = (film, n) => (n + 0.5) / film.requests.length;

function legend(film) {
  const used = film.names.map((name, k) => [name, k]).filter(([, k]) => film.requests.some((row) => row.window[k] > 0));
  return h("ul", { class: "legend" }, used.map(([name, k]) => h("li", null, h("i", { class: `k${k}` }), LABELS[name])));
}

function areas(film) {
  const n = film.requests.length, groups = Math.min(n, 500);
  const columns = Array.from({ length: groups }, (_, g) => {
    const rows = film.requests.slice(Math.floor((g * n) / groups), Math.floor(((g + 1) * n) / groups));
    return film.names.map((_, k) => rows.reduce((a, row) => a + row.window[k], 0) / rows.length);
  });
  const at = (tokens) => H - (tokens / film.top) * H;
  const limit = film.window_tokens && film.window_tokens <= film.top ? svg("path", { class: "limit", d: `M0 ${at(film.window_tokens)}H${W}` }) : null;
  const label = `Tokens of ${n} requests by category; the fullest window has ${count(film.peak)} tokens. The table below has all values.`;
  return drawing(label, ...stackedAreas(columns, even(groups), film.top, film.names.map((_, k) => `k${k}`)), ...gridLines(film.ticks, film.top), limit);
}

function scale(film) {
  const limit = film.window_tokens && film.peak > 0.5 * film.window_tokens ? film.window_tokens : 0;
  film.top = Math.max(film.peak, limit) * 1.04;
  film.ticks = ticksFor(film.top);
}

function lanes(film, state) {
  const last = film.requests.length - 1, place = (one) => position(film, Math.min(one.n, last));
  const row = (name, found, kind, say) => lane(name, found, kind, place, (one) => `request ${Math.min(one.n, last) + 1}: ${say(one)}`, (one) => state.go(one.n, true));
  const acts = groupBy(film.acts.filter((act) => !act.minor), (act) => act.layer);
  const rows = [...acts].map(([layer, found], k) => row(layer, found, `l${k % 7}`, (act) => `${act.name}: ${act.reason}`));
  if (film.breaks.length) rows.push(row("cache breaks", film.breaks, "broke", (one) => `${one.cause}, ${count(one.tokens)} tokens, ${usd(one.usd)}`));
  const pauses = film.requests.map((one, n) => ({ n, gap: n ? one.at - film.requests[n - 1].at : 0 })).filter((one) => one.gap >= PAUSE);
  if (pauses.length) rows.push(row("pauses", pauses, "pause", (one) => `${span(one.gap)} without a request`));
  return rows;
}

function requestPanel(film, state) {
  const n = state.n, row = film.requests[n];
  if (!row) return [h("p", null, "This session has no request.")];
  const gap = n ? row.at - film.requests[n - 1].at : 0;
  const about = [when(row.at), gap >= PAUSE ? `after a pause of ${span(gap)}` : "", row.model].filter(Boolean).join(" · ");
  const total = film.totals[n], grown = n ? total - film.totals[n - 1] : total;
  const acts = (film.actsAt.get(n) || []).concat(n === film.requests.length - 1 ? film.acts.filter((act) => act.n > n) : []);
  const broke = film.breakAt.get(n);
  return [
    h("div", { class: "head" }, h("h2", null, `Request ${count(n + 1)} `, h("small", null, `of ${count(film.requests.length)}`)), stepper(film, state)),
    h("p", { class: "soft" }, about),
    h("p", { class: "figures" },
      h("b", null, count(total)), " tokens", h("span", { class: "soft" }, ` (${grown >= 0 ? "+" : "−"}${count(Math.abs(grown))})`), " · ", h("b", null, usd(row.usd)),
      row.usage ? h("span", { class: "soft" }, ` · ${short(row.usage[0])} read from the cache, ${short(row.usage[1] + row.usage[2])} written, ${short(row.usage[3])} uncached, ${short(row.usage[4])} output`) : null),
    share(film, row),
    broke ? breakCard(film, broke, state) : null,
    ...actCards(film, acts, state),
    h("p", null, h("button", { type: "button", class: "main", onclick: () => state.show("request") }, "Open this request")),
  ].filter(Boolean);
}

function stepper(film, state) {
  const step = (by, label, text) => h("button", { type: "button", class: "quiet", "aria-label": label, onclick: () => state.go(state.n + by) }, text);
  const jump = (by, label, text) => h("button", { type: "button", class: "quiet", "aria-label": label, onclick: () => state.jump(by) }, text);
  return h("span", { class: "stepper" }, jump(-1, "event before", "⇤ event"), step(-1, "request before", "←"), step(1, "next request", "→"), jump(1, "next event", "event ⇥"));
}

function share(film, row) {
  const total = row.window.reduce((a, b) => a + b, 0) || 1;
  const parts = row.window.map((tokens, k) => [tokens, k]).filter(([tokens]) => tokens > 0);
  return h("div", null,
    h("div", { class: "share", "aria-hidden": "true" }, parts.map(([tokens, k]) => h("i", { class: `k${k}`, width: `${(100 * tokens) / total}%` }))),
    h("dl", { class: "shares" }, parts.map(([tokens, k]) => h("div", null, h("dt", null, h("i", { class: `k${k}` }), LABELS[film.names[k]]), h("dd", null, `${count(tokens)} `, h("small", null, percent(tokens / total)))))));
}

function breakCard(film, one, state) {
  return h("article", { class: one.announced ? "card" : "card bad" },
    h("h3", null, one.announced ? "Cache rewritten by a decision" : "Cache break", one.usd !== null ? h("span", { class: "tag loud" }, `lost ${usd(one.usd)}`) : one.again_usd ? h("span", { class: "tag calm after" }, `about ${usd(one.again_usd)}`) : null),
    h("p", null, `${one.cause}. Of ${count(one.expected)} tokens in the cache, ${count(one.actual)} were read; ${count(one.tokens)} were billed again${one.expected - one.actual > one.tokens ? `, the others had left the request` : ""}.`),
    one.reason && !one.cause.includes(one.reason) ? h("p", { class: "soft" }, `Seen: ${one.reason}.`) : null,
    one.remedy && !one.announced ? h("p", null, h("b", null, "Remedy: "), one.remedy, ".") : null,
    state.name === "film" ? h("button", { type: "button", class: "quiet", onclick: () => state.show("request") }, `what changed since request ${count(one.n)}`) : null);
}

function actCards(film, acts, state) {
  const main = acts.filter((act) => !act.minor), minor = acts.length - main.length;
  const cards = main.slice(0, 40).map((act) => actCard(film, act, state));
  if (main.length > 40) cards.push(h("p", { class: "soft" }, `and ${count(main.length - 40)} more`));
  if (minor) cards.push(lazy(`${counted(minor, "entry").replace("entrys", "entries")} of bookkeeping`, () => h("div", null, acts.filter((act) => act.minor).map((act) => actCard(film, act, state)))));
  return cards;
}

// About what an act cost once and changes at each later request.
function money(act) {
  if (act.each_usd === null) return [];
  const later = Math.abs(act.each_usd);
  return [act.once_usd > 0 ? `costs about ${usd(act.once_usd)} once` : "", later ? `${act.each_usd < 0 ? "saves" : "costs"} about ${usd(later)} at each later request` : ""];
}

function actCard(film, act, state) {
  const sum = (refs) => refs.reduce((a, ref) => a + film.tokens[ref], 0);
  const facts = [act.frees > 0 ? `frees ${count(act.frees)} tokens` : "", ...money(act), act.moves ? "changes the cached prefix" : "", act.line ? `line ${count(act.line)} of the log` : "", act.undone ? "undone later" : ""].filter(Boolean);
  return h("article", { class: "card act" },
    h("h3", null, h("span", { class: "tag" }, act.layer), ` ${act.name}`),
    act.reason ? h("p", null, act.reason) : null,
    facts.length ? h("p", { class: "soft" }, facts.join(" · ")) : null,
    act.went.length ? lazy(`What left: ${counted(act.went.length, "block")}, about ${count(sum(act.went))} tokens`, () => blockList(film, act.went.map((ref) => ({ ref, change: "removed" })), state)) : null,
    act.stands.length ? lazy(`What the model sees instead: ${counted(act.stands.length, "block")}, about ${count(sum(act.stands))} tokens`, () => blockList(film, act.stands.map((ref) => ({ ref, change: "added" })), state)) : null,
    lazy("The decision as logged", () => longText(JSON.stringify(film.blocks[act.body], null, 2))),
    act.command ? h("p", null, act.command.startsWith("reverie compact --undo") ? "Undo: " : "Read it again: ", copyable(act.command), act.command.startsWith("reverie compact --undo") && state.live ? [" ", undoButton(film, state)] : null, act.command.startsWith("reverie read") && state.live ? [" ", readBackButton(state, film, act.command.split(" ").pop())] : null) : null);
}

function windowTable(film, state) {
  const columns = [["Request", (row, n) => count(n + 1)], ["Time", (row) => when(row.at), "word"]];
  film.names.forEach((name, k) => columns.push([LABELS[name], (row) => count(row.window[k])]));
  columns.push(["Sum", (row, n) => count(film.totals[n])], ["Cost", (row) => usd(row.usd)], ["Events", (row, n) => [film.breakAt.has(n) ? "break" : "", ...(film.actsAt.get(n) || []).filter((act) => !act.minor).map((act) => act.name)].filter(Boolean).join(", "), true]);
  return table("Window by category of each request", columns, film.requests, (row, n) => state.go(n));
}
