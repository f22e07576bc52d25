// One request: its blocks as sent, the difference to the request before with prices, and the JSON.

const PAGE = 120;

function requestView(film, state) {
  const body = h("div");
  const ways = { difference: "Changes", whole: "All blocks", beside: "Said and sent", raw: "JSON" };
  const choice = h("div", { class: "choice", role: "group", "aria-label": "part of the request" }, Object.entries(ways).map(([way, label]) =>
    h("button", { type: "button", "data-way": way, onclick: () => { state.way = way; view.update(); } }, label)));
  const view = h("section", { class: "view", "aria-label": "Request" }, body);
  view.update = () => {
    if (!film.requests.length) return body.replaceChildren(h("p", null, "This session has no request."));
    choice.childNodes.forEach((button) => button.setAttribute("aria-pressed", String(button.dataset.way === state.way)));
    body.replaceChildren(...requestBody(film, state, choice));
  };
  view.update();
  return view;
}

function requestBody(film, state, choice) {
  const n = state.n, row = film.requests[n], broke = film.breakAt.get(n);
  const exact = row.marks ? "exactly as sent, with its cache breakpoints" : film.requests.some((one) => one.marks) ? "as sent, without its cache breakpoints" : "as far as the recording holds it";
  const content = { raw: rawPart, whole: wholePart, beside: besidePart, difference: differencePart }[state.way](film, n, state);
  return [
    h("div", { class: "head" }, h("h2", null, `Request ${count(n + 1)} `, h("small", null, `of ${count(film.requests.length)}`)), stepper(film, state)),
    h("p", { class: "soft" }, `${when(row.at)} · ${count(film.totals[n])} tokens · ${usd(row.usd)} · ${exact}`),
    usageTable(film, row),
    broke ? breakCard(film, broke, state) : null,
    choice,
    content,
    lazy(`The reply: ${counted(row.reply.length, "block")}`, () => blockList(film, row.reply.map((ref) => ({ ref, role: "assistant" })), state)),
  ].filter(Boolean);
}

function usageTable(film, row) {
  if (!row.usage) return h("p", { class: "soft" }, "The reply reports no usage.");
  const rates = row.rates === null ? null : film.rates[row.rates];
  const kinds = ["read from the cache", "written for 5 minutes", "written for 1 hour", "uncached", "output"];
  const rows = kinds.map((kind, k) => ({ kind, tokens: row.usage[k], usd: rates ? (row.usage[k] * rates[k]) / 1e6 : null })).filter((one) => one.tokens);
  return table("The bill of this request", [["Billed as", (one) => one.kind], ["Tokens", (one) => count(one.tokens)], ["Cost", (one) => usd(one.usd)]], rows);
}

function differencePart(film, n, state) {
  const { rows, gone } = film.difference(n);
  const added = rows.filter((one) => one.change === "added"), same = rows.filter((one) => one.change === "same");
  const tokens = (list) => list.reduce((a, one) => a + film.tokens[one.ref], 0);
  const first = rows.findIndex((one) => one.change === "added");
  const kept = rows.slice(0, first < 0 ? rows.length : first);
  const priced = added.map((one) => ({ ...one, usd: film.price(one.ref, n) }));
  const said = n === 0 ? "The first request: everything is new." : gone.length
    ? `The first ${counted(kept.length, "block")} stayed as they were. ${counted(gone.length, "block")} left (about ${count(tokens(gone))} tokens), ${count(added.length)} came (about ${count(tokens(added))} tokens).`
    : `All ${counted(same.length, "block")} of request ${count(n)} stayed as they were, so the cache could be read. ${count(added.length)} came (about ${count(tokens(added))} tokens).`;
  return h("div", null,
    h("p", { class: "lead" }, said),
    added.length ? h("h3", null, n ? "New in this request" : "Content") : null,
    blockList(film, priced, state),
    gone.length ? [h("h3", null, "Left since the request before"), blockList(film, gone, state)] : null);
}

function wholePart(film, n, state) {
  const parts = film.parts(n);
  return h("div", null, h("p", { class: "lead" }, `${counted(parts.length, "block")} in the order in which the provider reads them. A bar at the left shows the category, “cache” a breakpoint.`), blockList(film, parts, state));
}

// Everything that was said up to this request, each beside its form in the request.
function besidePart(film, n, state) {
  const { said, sent, left } = film.said(n), gone = said.filter((one) => !sent.has(one.ref)).length;
  const rows = h("ol", { class: "beside" });
  let at = said.length;
  const more = h("button", { type: "button", class: "quiet", onclick: () => add() }, "");
  const add = () => {
    const from = Math.max(0, at - PAGE);
    rows.prepend(...said.slice(from, at).map((one) => h("li", null, h("div", null, blockCard(film, one, "div")), h("div", null, sentPart(film, one, sent, left, state)))));
    at = from;
    more.textContent = `show ${count(Math.min(PAGE, at))} earlier of ${count(at)}`;
    more.hidden = at <= 0;
  };
  add();
  return h("div", null,
    h("p", { class: "lead" }, `${counted(said.length, "block")} were said so far; ${gone ? `${count(gone)} of them are no longer in the request as they were said` : "all of them are in the request as they were said"}.`),
    h("div", { class: "beside heads", "aria-hidden": "true" }, h("b", null, "Said"), h("b", null, "In this request")), more, rows);
}

function sentPart(film, one, sent, left, state) {
  if (sent.has(one.ref)) return h("p", { class: "soft" }, "as said");
  const found = left.get(one.ref);
  if (!found) return h("p", { class: "soft" }, "left out; the log does not say why");
  const { act, stands } = found;
  const open = h("button", { type: "button", class: "plain", onclick: () => { state.go(Math.min(act.n, film.requests.length - 1)); state.show("film"); } }, `${act.name}, request ${count(act.n + 1)}`);
  return stands === undefined ? h("p", null, h("span", { class: "tag calm" }, act.layer), open) : h("div", null, h("p", null, h("span", { class: "tag calm" }, act.layer), open), blockCard(film, { ref: stands }, "div"));
}

function rawPart(film, n) {
  const text = JSON.stringify(film.raw(n), null, 2);
  return h("div", null, h("p", { class: "lead" }, "The body of the request. ", navigator.clipboard ? h("button", { type: "button", class: "quiet", onclick: () => navigator.clipboard.writeText(text) }, "copy all") : null), longText(text, 60000));
}

// Cards of blocks, the first ones at once and more on request.
function blockList(film, parts, state) {
  const list = h("ol", { class: "blocks" });
  let at = 0;
  const more = h("button", { type: "button", class: "quiet", onclick: () => add() }, "");
  const add = () => {
    for (const one of parts.slice(at, at + PAGE)) list.append(blockCard(film, one));
    at = Math.min(parts.length, at + PAGE);
    more.textContent = `show ${count(Math.min(PAGE, parts.length - at))} more of ${count(parts.length - at)}`;
    more.hidden = at >= parts.length;
  };
  add();
  return h("div", null, list, more);
}

function blockCard(film, one, tag = "li") {
  const block = film.blocks[one.ref], kind = typeof block === "object" && block !== null ? block.type || (one.where === "tools" ? "tool" : "") : "";
  const tool = film.tools[one.ref] || (one.where === "tools" && block ? block.name : "");
  const text = film.text(one.ref);
  const sign = { added: "+", removed: "−" }[one.change] || "";
  const facts = [one.role, kind === "text" ? "" : String(kind).replace("_", " "), tool, one.m === undefined ? "" : `message ${count(one.m + 1)}`].filter(Boolean);
  const lines = text.split("\n", 14).length, long = lines > 12 || text.length > 900;
  const preview = long ? text.split("\n", 8).join("\n").slice(0, 600) : text;
  const body = h("div", null, h("pre", { dir: "auto", tabindex: tag === "li" ? null : "0" }, preview));
  if (long) {
    const open = h("button", { type: "button", class: "quiet", "aria-expanded": "false", onclick: () => body.replaceChildren(longText(text, 60000)) }, `show all (${count(text.length)} characters)`);
    body.append(open);
  }
  return h(tag, { class: `block k${film.categories[one.ref]}${one.change ? " " + one.change : ""}` },
    h("p", { class: "facts" }, sign ? h("b", { class: "sign", "aria-label": one.change }, sign) : null, facts.join(" · "),
      h("span", { class: "soft" }, ` · about ${count(film.tokens[one.ref])} tokens${one.usd ? `, ${usd(one.usd)}` : ""}`),
      one.mark ? h("span", { class: "tag", title: "cache breakpoint" }, `cache ${one.mark}`) : null,
      block && block.is_error ? h("span", { class: "tag loud" }, "error") : null),
    body);
}
