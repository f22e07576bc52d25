// One session: compactions with their losses, the bill, memories and agents, and the search.

function compactionsView(film, state) {
  if (!film.compactions.length) return h("section", { class: "view" }, h("p", { class: "lead" }, "Nothing was compacted in this session."));
  return h("section", { class: "view", "aria-label": "Compactions" },
    h("p", { class: "lead" }, "Each compaction with its summary, and the exact names (paths, hashes, tests, errors, numbers) that are no longer literally in view after it."),
    film.compactions.map((one, k) => h("article", { class: "card" },
      h("h2", null, `Compaction ${k + 1} `, h("small", null, `before request ${count(one.n + 1)}${one.undone ? ", undone later" : ""}`)),
      h("p", { class: "figures" }, h("b", null, count(one.before)), " tokens before, ", h("b", null, count(one.after)), " after · ", `${one.trigger}, method ${one.method}`),
      h("p", null, h("b", null, percent(one.kept)), " of the uses of exact names are still in view. ", meter(one.kept)),
      h("p", null, h("button", { type: "button", class: "quiet", onclick: () => { state.go(Math.min(one.n, film.requests.length - 1)); state.show("film"); } }, "show it in the film")),
      table(`Names by kind, compaction ${k + 1}`, [["Kind", (row) => row[0]], ["Had", (row) => count(row[1][0])], ["Out of view", (row) => count(row[1][1])]], Object.entries(one.kinds)),
      one.lost.length ? lazy(`Names out of view: ${count(one.lost_count)}, most used first`, () => table(`Names out of view, compaction ${k + 1}`, [["Name", (row) => h("code", { dir: "auto" }, row.text)], ["Kind", (row) => row.kind, "word"], ["Uses", (row) => count(row.uses)], ["Read it again", (row) => (one.read && row.handle ? (state.live ? readBackButton(state, film, row.handle) : copyable(one.read + row.handle)) : row.handle), true]], one.lost)) : null,
      lazy("The summary", () => longText(one.summary, 60000)),
      actCards(film, [film.acts[one.act]], state).map((card) => card))));
}

function billView(film, state) {
  const bill = film.bill, total = bill.total;
  const input = total.read + total.written + total.uncached;
  const columns = (name) => [[name, (row) => row.name], ["Calls", (row) => count(row.calls)], ["Read", (row) => short(row.read)], ["Written", (row) => short(row.written)], ["Uncached", (row) => short(row.uncached)], ["Output", (row) => short(row.output)], ["Cost", (row) => usd(row.usd)], ["Share", (row) => meter(total.usd ? row.usd / total.usd : 0)]];
  const dear = [...film.breaks].filter((one) => !one.announced).sort((a, b) => (b.usd || 0) - (a.usd || 0));
  return h("section", { class: "view", "aria-label": "Bill" },
    h("p", { class: "big" }, "This session cost ", h("b", null, usd(total.usd)), bill.lost_usd > 0.005 ? [", of which ", h("b", { class: "bad" }, usd(bill.lost_usd)), " for cache breaks."] : "."),
    h("p", { class: "soft" }, `${counted(total.calls, "call")}, ${count(input)} input tokens, ${input ? percent(total.read / input) : "0 %"} of them read from the cache; ${count(total.output)} output tokens.${total.unpriced ? ` ${counted(total.unpriced, "call")} without a price.` : ""}`),
    h("h2", null, "What the cache breaks cost"),
    bill.causes.length
      ? [h("p", { class: "soft" }, `${percent(bill.named_share)} of the tokens that were billed again have a known cause.`),
        table("Losses by cause", [["Cause", (row) => row.cause], ["Breaks", (row) => count(row.breaks)], ["Tokens", (row) => count(row.tokens)], ["Lost", (row) => usd(row.usd)], ["Share", (row) => meter(bill.lost_usd ? row.usd / bill.lost_usd : 0, "lost")], ["Remedy", (row) => row.remedy, true]], bill.causes)]
      : h("p", null, "No break cost anything."),
    dear.length ? lazy(`Each break: ${count(dear.length)}, the most expensive first`, () => table("Breaks", [["Request", (one) => count(one.n + 1)], ["Cause", (one) => one.cause, true], ["Seen", (one) => one.reason, true], ["Tokens", (one) => count(one.tokens)], ["Lost", (one) => usd(one.usd)]], dear, (one) => { state.go(one.n); state.show("request"); })) : null,
    h("h2", null, "By day"), table("Cost by day", columns("Day"), bill.days),
    h("h2", null, "By layer"), table("Cost by layer", columns("Layer"), bill.layers),
    h("h2", null, "By request"), bars(film.requests, (row) => row.usd || 0, "Cost of each request; those with a cache break are red", (row, k) => film.breakAt.has(k) && !film.breakAt.get(k).announced), lazy("The chart as a table", () => table("Cost of each request", [["Request", (row, n) => count(n + 1)], ["Time", (row) => when(row.at), "word"], ["Read", (row) => (row.usage ? count(row.usage[0]) : "–")], ["Written", (row) => (row.usage ? count(row.usage[1] + row.usage[2]) : "–")], ["Uncached", (row) => (row.usage ? count(row.usage[3]) : "–")], ["Output", (row) => (row.usage ? count(row.usage[4]) : "–")], ["Cost", (row) => usd(row.usd)]], film.requests, (row, n) => { state.go(n); state.show("request"); })));
}

function peopleView(film, state, all) {
  const children = all.filter((one) => one.parent === film.id), others = children.filter((one) => !film.agents.some((agent) => agent.agent === one.id));
  const transcript = (name) => children.filter((one) => one.id === name).map((one) => h("button", { type: "button", class: "quiet", onclick: (event) => { event.stopPropagation(); state.open(one); } }, "open"))[0];
  const open = (one) => { state.go(Math.min(one.n, film.requests.length - 1)); state.show("film"); };
  return h("section", { class: "view", "aria-label": "Memories and agents" },
    h("h2", null, "Memories"),
    film.memories.length ? table("Memories shown and saved", [["Request", (one) => count(one.n + 1)], ["Act", (one) => (one.shown ? "shown to the model" : "saved from this session"), "word"], ["Memories", (one) => one.names.join(", "), true], ["Why", (one) => film.acts[one.act].reason, true]], film.memories, open) : h("p", { class: "soft" }, "No memory was shown or saved in this session."),
    h("h2", null, "Agents"),
    film.agents.length ? table("Agents", [["Agent", (one) => one.agent], ["State", (one) => one.status, "word"], ["Task", (one) => one.directive.slice(0, 300), true], ["Answer", (one) => one.text.slice(0, 300) || "–", true], ["Transcript", (one) => transcript(one.agent) || "–", "word"]], film.agents, open) : h("p", { class: "soft" }, "This session started no agent."),
    others.length ? [h("h2", null, "Transcripts"), table("Transcripts", [["Session", (one) => one.title || one.id], ["Requests", (one) => count(one.requests.length)], ["Cost", (one) => usd(one.bill.total.usd)]], others, (one) => state.open(one))] : null);
}

function searchView(film, state) {
  const out = h("div", { "aria-live": "polite" }), all = h("div", { "aria-live": "polite" });
  const box = h("input", { type: "search", value: state.words || "", placeholder: "text, path, command, error …", "aria-label": state.live ? "search in all sessions and memories" : "search in everything of this session", oninput: () => { clearTimeout(timer); timer = setTimeout(run, 160); } });
  let timer = 0, asked = "";
  const run = async () => {
    state.words = asked = box.value.trim();
    out.replaceChildren(...(film ? [state.live ? h("h2", null, "In the open session") : null, ...results(film, state, asked)].filter(Boolean) : []));
    if (!state.live || asked.length < 2) return all.replaceChildren();
    try {
      const wanted = asked, found = (await state.live.ask("/search", { words: wanted })).body;
      if (wanted === asked) all.replaceChildren(...hits(found, state));
    } catch (error) {
      all.replaceChildren(h("p", { class: "card bad" }, error.message));
    }
  };
  const view = h("section", { class: "view", "aria-label": "Search" }, h("p", null, box), state.live && !film ? h("p", { class: "soft" }, "Searches the messages of all sessions and all memories.") : null, all, out);
  view.focusBox = () => box.focus();
  run();
  return view;
}

function results(film, state, words) {
  if (words.length < 2) return [h("p", { class: "soft" }, "Type at least two characters. The search reads every block of every request, every reply and every decision.")];
  const wanted = words.toLowerCase(), first = film.firstSeen(), found = [];
  film.lower ||= film.blocks.map((block) => (typeof block === "string" ? block : JSON.stringify(block)).toLowerCase());
  for (let ref = 0; ref < film.blocks.length && found.length < 200; ref++) if (film.lower[ref].includes(wanted)) found.push(ref);
  found.sort((a, b) => (first.get(a) ?? 1e9) - (first.get(b) ?? 1e9));
  const rows = found.map((ref) => {
    const n = first.get(ref), text = film.text(ref), at = text.toLowerCase().indexOf(wanted);
    const from = Math.max(0, at - 80), part = at < 0 ? text.slice(0, 160) : text.slice(from, at + words.length + 160);
    return h("li", { class: `block k${film.categories[ref]}` },
      h("p", { class: "facts" }, n === undefined ? "" : h("button", { type: "button", class: "plain", onclick: () => { state.way = "difference"; state.go(n); state.show("request"); } }, `request ${count(n + 1)}`), h("span", { class: "soft" }, ` ${film.tools[ref]} · about ${count(film.tokens[ref])} tokens`)),
      h("pre", { dir: "auto" }, from > 0 ? "…" : "", at < 0 ? part : [part.slice(0, at - from), h("mark", null, part.slice(at - from, at - from + words.length)), part.slice(at - from + words.length)]));
  });
  return [h("p", { class: "soft" }, found.length ? `${count(found.length)}${found.length === 200 ? " or more" : ""} blocks, each with the first request that has it.` : "Nothing found."), h("ol", { class: "blocks" }, rows)];
}
