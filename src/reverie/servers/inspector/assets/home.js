// What the server knows beside single sessions: memories, dreams, agents, costs, and hits of the search.

// A view that asks the server when it is shown, and again while it is; it is drawn anew only when the answer differs.
function remoteView(state, label, path, query, draw) {
  const view = h("section", { class: "view", "aria-label": label }, h("p", { class: "soft" }, "Loading …"));
  let tag = "", busy = false;
  view.renew = async () => {
    if (busy || view.querySelector(".sure")) return;
    busy = true;
    try {
      const found = await state.live.ask(path, query(), { tag });
      if (found) {
        tag = found.tag;
        view.replaceChildren(...draw(found.body, view).flat(Infinity).filter(Boolean));
      }
    } catch (error) {
      view.replaceChildren(h("p", { class: "card bad" }, error.message));
    } finally {
      busy = false;
    }
  };
  view.again = async () => {
    tag = "";
    await view.renew();
  };
  view.renew();
  return view;
}

// A text of lines that begin with + and -.
function diffText(text) {
  const kinds = { "+": "plus", "-": "minus", "@": "at" };
  return h("pre", { class: "diff", tabindex: "0" }, text.split("\n").filter((line) => !/^(---|\+\+\+) /.test(line)).map((line) => h("span", { class: kinds[line[0]] || null }, `${line}\n`)));
}

const day = (time) => (time || "").slice(0, 10);
const minute = (time) => (time || "").slice(0, 16).replace("T", " ");

// -- Memories

function memoriesView(film, state) {
  const panel = h("div", { class: "detail", tabindex: "-1", "aria-live": "polite" });
  let word = "", known = null;
  const choose = async (one, isChosen = true) => {
    known = one;
    try {
      panel.replaceChildren(...memoryDetail((await state.live.ask("/memory", { project: one.project, file: one.file })).body, one, state, view));
      if (isChosen) panel.focus();
    } catch (error) {
      panel.replaceChildren(h("p", { class: "card bad" }, error.message));
    }
  };
  const view = remoteView(state, "Memories", "/memories", () => ({}), ({ projects }) => {
    const all = projects.flatMap((one) => one.memories.map((memory) => ({ ...memory, project: one.project })));
    const waiting = all.filter((one) => one.diff), list = h("div");
    const draw = () => list.replaceChildren(memoryTable(all.filter((one) => `${one.name} ${one.description} ${one.type} ${one.project}`.toLowerCase().includes(word)), choose));
    const box = h("input", { type: "search", value: word, placeholder: "filter by name, type, project …", "aria-label": "filter memories", oninput: () => { word = box.value.trim().toLowerCase(); draw(); } });
    draw();
    const wanted = state.memory || known;
    state.memory = null;
    if (wanted && all.some((one) => one.project === wanted.project && one.file === wanted.file)) choose(wanted, false);
    else panel.replaceChildren(h("p", { class: "empty" }, "Choose a memory to see where it came from, its history, and who wrote each line."));
    return [
      ...projects.filter((one) => one.error).map((one) => h("p", { class: "card bad" }, `${one.project}: ${one.error}`)),
      h("h2", null, "Waiting for your approval ", h("small", null, count(waiting.length))),
      waiting.length ? h("div", { class: "cards wide" }, waiting.map((one) => waitingCard(one, state, view, choose))) : h("p", { class: "empty" }, "Nothing waits. Memories derived from untrusted text, such as web pages and tool results, appear here first."),
      h("h2", null, "All memories ", h("small", null, count(all.length))),
      all.length ? h("div", { class: "split" }, h("div", null, h("p", null, box), list), panel) : h("p", { class: "empty" }, "No memories yet."),
    ];
  });
  return view;
}

function memoryTable(rows, choose) {
  return table("List of memories", [["Memory", (one) => [one.name, h("small", null, one.project)]], ["Type", (one) => one.type, "word"], ["Trust", (one) => trustTag(one), "word"], ["Changed", (one) => day(one.modified)]], rows, choose);
}

const trustTag = (one) => h("span", { class: one.diff ? "tag wait" : "tag" }, one.diff ? "waits" : one.trust);

function waitingCard(one, state, view, choose) {
  const query = { project: one.project, file: one.file, version: one.version }, again = () => view.again();
  return h("article", { class: "card waiting" }, h("h3", null, h("button", { type: "button", class: "plain", onclick: () => choose(one) }, one.name)),
    h("p", { class: "soft" }, `${one.type} · ${one.project}${one.source.length ? ` · from ${one.source.map((from) => from.split(" ")[0]).join(", ")}` : ""}`),
    diffText(one.diff),
    h("p", { class: "acts" }, actButton(state, "approve", "approve", query, { kind: "main", done: again, name: one.name }), " ", actButton(state, "reject", "reject", query, { kind: "quiet", done: again, name: one.name })));
}

function memoryDetail(memory, one, state, view) {
  const facts = [memory.type, memory.scope, memory.created ? `since ${day(memory.created)}` : "", memory.expires ? `until ${day(memory.expires)}` : "", memory.file].filter(Boolean);
  return [
    h("h3", null, memory.name, " ", h("span", { class: "tag" }, `trust: ${memory.trust}`)),
    memory.problem ? h("p", { class: "bad" }, memory.problem) : null,
    h("p", { class: "soft" }, facts.join(" · ")),
    h("p", { class: "body", dir: "auto" }, memory.body.trim()),
    h("h4", null, "Where it came from"),
    memory.origins.length ? memory.origins.map((from) => originPart(from, state)) : h("p", { class: "soft" }, "Written by hand, or its source is not recorded."),
    h("h4", null, "History"),
    h("ol", { class: "history" }, memory.log.map((change) => h("li", null, h("b", null, change.act), ` by ${change.who} `, h("time", { class: "soft" }, minute(change.time)), change.why ? h("p", { class: "soft" }, change.why) : null, " ", actButton(state, "undo", "undo-change", { project: one.project, change: change.id }, { sure: `undo change ${change.id}?`, done: () => view.again(), name: change.id })))),
    lazy("Who wrote each line", () => table("Blame", [["Line", (line) => line.text.trim() ? h("code", { dir: "auto" }, line.text) : h("span", { class: "soft" }, "(empty line)")], ["Author", (line) => line.who, "word"], ["Change", (line) => line.id], ["Date", (line) => day(line.time)], ["Reason", (line) => line.why, true]], memory.blame)),
  ].flat(Infinity).filter(Boolean);
}

function originPart(from, state) {
  const [before, sentence, after] = from.said;
  const name = h("span", { class: "soft" }, `${from.session}${from.message ? `, message ${from.message.slice(0, 8)}` : ""}`);
  if (!sentence) return h("p", null, name, h("span", { class: "soft" }, from.message ? " (no longer in the log)" : ""));
  return h("figure", { class: "origin" }, h("blockquote", { dir: "auto" }, before ? "… " : "", before, h("mark", null, sentence), after, after ? " …" : ""),
    h("figcaption", null, `${from.kind === "user" ? "said by a person or tool" : from.kind} in `, h("button", { type: "button", class: "plain", onclick: () => state.follow(from.session) }, from.session)));
}

// -- Dreams

function dreamsView(film, state) {
  const view = remoteView(state, "Dreams", "/dreams", () => ({}), ({ projects, running }) => {
    const reports = projects.flatMap((one) => one.reports.map((report) => ({ ...report, project: one.project }))).sort((a, b) => (a.began < b.began ? 1 : -1));
    const questions = projects.flatMap((one) => one.questions.map((each) => ({ ...each, project: one.project })));
    return [
      h("p", { class: "lead" }, "A dream consolidates the memories of a project: it merges equal ones, makes dates absolute and removes dead links. Each one is a single change that can be undone."),
      running.map((one) => dreamProgress(one, state)),
      questions.length ? [h("h2", null, "Questions for you ", h("small", null, count(questions.length))), h("ul", { class: "questions" }, questions.map((one) => h("li", null, h("span", { class: "tag wait" }, one.topic), ` ${one.text} `, h("span", { class: "soft" }, one.project))))] : null,
      h("h2", null, "Past dreams ", h("small", null, count(reports.length))),
      reports.length ? reports.map((one) => dreamCard(one, state, view)) : h("p", { class: "empty" }, "No dream yet: 'reverie dream --now' starts one."),
    ];
  });
  return view;
}

function dreamCard(one, state, view) {
  const acts = groupBy(one.changes, (change) => change.act), spent = one.spent.cost_usd ? ` · ${usd(one.spent.cost_usd)}` : "";
  const said = [...acts].map(([act, found]) => `${count(found.length)} ${act}`).join(", ") || "nothing to change";
  return h("article", { class: "card dream" },
    h("h3", null, minute(one.began), " ", h("span", { class: one.state === "completed" ? "tag" : "tag loud" }, one.undone ? "undone" : one.state)),
    h("p", null, said, h("span", { class: "soft" }, ` · ${one.project} · ${one.by === "model" ? one.spent.model : "without a model"} · ${one.files_before} files before, ${one.files_after} after${spent}`)),
    one.problem ? h("p", { class: "bad" }, one.problem) : null,
    one.changes.map((change) => h("details", { class: "lazy", open: one.changes.length < 4 }, h("summary", null, `${change.act} ${change.file}${change.into ? ` into ${change.into}` : ""}`), h("p", { class: "soft" }, change.why), diffText(change.diff))),
    one.can_undo ? h("p", { class: "acts" }, actButton(state, "undo this dream", "undo-dream", { project: one.project, dream: one.dream }, { sure: "undo all its changes?", done: () => view.again() })) : null);
}

// -- Agents

function agentsView(film, state) {
  return remoteView(state, "Agents", "/agents", () => ({}), ({ agents, messages }) => {
    const names = new Set(agents.map((one) => one.agent)), children = groupBy(agents, (one) => one.parent || one.session);
    const roots = [...children.keys()].filter((name) => !names.has(name));
    const branch = (name) => (children.get(name) || []).map((one) => h("li", null, agentRow(one, state, messages), children.has(one.agent) ? h("ul", null, branch(one.agent)) : null));
    const sum = agents.reduce((a, one) => a + (one.cost_usd || 0), 0), running = agents.filter((one) => one.state === "running").length;
    return [
      h("p", { class: "lead" }, agents.length ? `${counted(agents.length, "agent")}, ${count(running)} running, ${usd(sum)} in all. Each opens its transcript as a film of its own.` : "No agents yet. A session starts agents with its Agent tool."),
      h("ul", { class: "tree" }, roots.map((name) => h("li", { class: "root" }, h("p", { class: "facts" }, h("button", { type: "button", class: "plain", onclick: () => state.follow(name) }, name), h("span", { class: "soft" }, " session")), h("ul", null, branch(name))))),
      agents.length ? lazy("The tree as a table", () => table("List of agents", [["Agent", (one) => one.agent], ["State", (one) => one.state, "word"], ["Started by", (one) => one.parent || one.session, "word"], ["Task", (one) => one.description, true], ["Turns", (one) => count(one.turns)], ["Tokens", (one) => count(one.tokens)], ["Cost", (one) => usd(one.cost_usd)]], agents, (one) => state.follow(`agents/${one.agent}`))) : null,
    ];
  });
}

function agentRow(one, state, messages) {
  const found = messages.filter((each) => each.to === one.agent || each.from === one.agent);
  return h("div", { class: "agent" },
    h("p", { class: "facts" }, h("button", { type: "button", class: "plain", onclick: () => state.follow(`agents/${one.agent}`) }, one.agent), " ", h("span", { class: one.state === "running" ? "tag" : one.state === "completed" ? "tag calm" : "tag loud" }, one.state), h("span", { class: "soft" }, ` ${one.kind} · ${counted(one.turns, "turn")} · ${short(one.tokens)} tokens · ${usd(one.cost_usd)}`), one.state === "running" ? [" ", actButton(state, "stop", "stop", { session: `agents/${one.agent}` }, { sure: "stop it?", name: one.agent })] : null),
    h("p", { dir: "auto" }, one.description),
    one.line && one.line !== one.description ? h("p", { class: "soft", dir: "auto" }, one.line.slice(0, 300)) : null,
    found.length ? lazy(counted(found.length, "message"), () => h("ol", { class: "blocks" }, found.map((each) => h("li", { class: "block" }, h("p", { class: "facts" }, `${each.from || "unknown"} → ${each.to}`, h("span", { class: "soft" }, ` ${minute(each.time)}`)), longText(each.text, 800))))) : null);
}

// -- Costs

function costsView(film, state) {
  const view = remoteView(state, "Costs", "/costs", () => ({ days: state.days }), (data) => {
    const total = data.total, input = total.read + total.written + total.uncached;
    const columns = (name) => [[name, (row) => row.name], ["Calls", (row) => count(row.calls)], ["Read", (row) => short(row.read)], ["Written", (row) => short(row.written)], ["Uncached", (row) => short(row.uncached)], ["Output", (row) => short(row.output)], ["Lost", (row) => (row.lost_usd ? usd(row.lost_usd) : "–")], ["Cost", (row) => usd(row.usd)], ["Share", (row) => meter(total.usd ? row.usd / total.usd : 0)]];
    const part = (title, rows) => [h("h2", null, title), rows.length ? table(title, columns(title.replace("By ", "").replace(/^./, (c) => c.toUpperCase())), rows) : h("p", { class: "empty" }, "Nothing in these days.")];
    return [
      h("div", { class: "choice", role: "group", "aria-label": "days" }, [1, 7, 30, 365].map((days) => h("button", { type: "button", "aria-pressed": String(days === state.days), onclick: () => { state.days = days; view.again(); } }, days === 1 ? "today" : days === 365 ? "a year" : `${days} days`))),
      h("p", { class: "big" }, h("b", null, usd(total.usd)), ` for ${counted(total.calls, "call")}`, total.lost_usd > 0.005 ? [", of which ", h("b", { class: "bad" }, usd(total.lost_usd)), " were lost to cache breaks."] : "."),
      h("p", { class: "soft" }, `${count(input)} input tokens, ${input ? percent(total.read / input) : "0 %"} of them read from the cache; ${count(total.output)} output tokens.${total.unpriced ? ` ${counted(total.unpriced, "call")} without a price.` : ""}`),
      data.budgets.length ? [h("h2", null, "Budgets"), table("Budgets", [["Budget", (one) => one.what], ["Per", (one) => one.per, "word"], ["Spent", (one) => usd(one.usd)], ["Of", (one) => usd(one.of_usd)], ["Share", (one) => meter(one.of_usd ? one.usd / one.of_usd : 0, one.usd >= one.of_usd ? "lost" : "fill")]], data.budgets)] : null,
      h("h2", null, "Losses by cause"),
      data.causes.length ? table("Losses by cause", [["Cause", (row) => row.cause], ["Lost", (row) => usd(row.usd)], ["Share", (row) => meter(total.lost_usd ? row.usd / total.lost_usd : 0, "lost")], ["Remedy", (row) => row.remedy, true]], data.causes) : h("p", { class: "empty" }, "No cache break cost anything."),
      h("h2", null, "By day"), data.by.day.length > 1 ? bars(data.by.day, (row) => row.usd, "Cost of each day with a call") : null, data.by.day.length ? table("Cost by day", columns("Day"), data.by.day) : h("p", { class: "empty" }, "No calls in these days."),
      part("By project", data.by.project), part("By layer", data.by.layer), part("By session", data.by.session.slice(0, 50)),
    ];
  });
  return view;
}

// -- hits of the search over everything

// A text with the words of the query marked; a hit without one was found by its neighbours or its meaning.
function marked(text, query) {
  const found = query.split(/\s+/).filter(Boolean).map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  const parts = found.length ? text.split(new RegExp(`(${found.join("|")})`, "i")) : [text];
  return parts.length > 1 ? parts.map((part, k) => (k % 2 ? h("mark", null, part) : part)) : [h("span", { class: "tag calm" }, "near a match"), text];
}

function hits({ messages, memories }, state) {
  if (!messages.length && !memories.length) return [h("p", { class: "empty" }, "Nothing found in other sessions and memories.")];
  return [
    memories.length ? h("h2", null, "Memories ", h("small", null, count(memories.length))) : null,
    memories.length ? h("ol", { class: "blocks" }, memories.map((one) => h("li", { class: "block k4" }, h("p", { class: "facts" }, h("button", { type: "button", class: "plain", onclick: () => { state.memory = one; state.views.memories = null; state.show("memories"); } }, one.name), h("span", { class: "soft" }, ` ${one.project}`)), h("p", { dir: "auto" }, one.text.slice(0, 300))))) : null,
    messages.length ? h("h2", null, "Sessions ", h("small", null, counted(messages.length, "message"))) : null,
    messages.length ? h("ol", { class: "blocks" }, messages.map((one) => h("li", { class: one.kind === "user" ? "block k1" : "block k3" }, h("p", { class: "facts" }, h("button", { type: "button", class: "plain", onclick: () => state.follow(one.project ? `${one.project}/${one.session}` : one.session, "search") }, one.session), h("span", { class: "soft" }, ` ${one.speaker || one.kind} · ${minute(one.time)}`)), h("p", { dir: "auto" }, marked(one.snippet, state.words))))) : null,
  ].filter(Boolean);
}
