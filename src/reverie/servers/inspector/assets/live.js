// The page on loopback: asking its server, acting through it, and the view of everything that runs now.

const EVERY = 2000;

class Live {
  constructor() {
    const given = new URLSearchParams(location.hash.slice(1)).get("token");
    if (given) {
      sessionStorage.setItem("token", given);
      history.replaceState(null, "", location.pathname); // so that nobody copies it with the address
    }
    this.token = given || sessionStorage.getItem("token") || "";
    this.name = "";
    this.tag = "";
  }

  async ask(path, query = {}, { tag = "", method = "GET" } = {}) {
    const headers = { Authorization: `Bearer ${this.token}` };
    if (tag) headers["If-None-Match"] = `"${tag}"`;
    const answer = await fetch(`${path}?${new URLSearchParams(query)}`, { method, headers, cache: "no-store" });
    if (answer.status === 304) return null;
    if (!answer.ok) throw new Error((await answer.text()).trim());
    return { tag: (answer.headers.get("etag") || "").replaceAll('"', ""), body: await answer.json() };
  }

  async act(name, query) {
    return (await this.ask(`/do/${name}`, query, { method: "POST" })).body.result;
  }

  // The film of the open session if it has grown; null otherwise.
  async film() {
    if (!this.name) return null;
    const found = await this.ask("/film", { session: this.name }, { tag: this.tag });
    if (found) this.tag = found.tag;
    return found && found.body;
  }

  choose(name) {
    this.name = name;
    this.tag = "";
  }
}

// A button that acts through the server; with `sure` the first click asks. Its result replaces it as text.
function actButton(state, label, act, query, { sure = "", kind = "quiet", done = null, name = "" } = {}) {
  let asked = !sure;
  const button = h("button", { type: "button", class: `${kind} act-${act}`, "data-key": `${act}:${Object.values(query).join("/")}`, "aria-label": name ? shown(`${label}: ${name}`) : null, onclick: async () => {
    if (!asked) {
      asked = true;
      button.classList.add("sure");
      button.textContent = sure;
      return;
    }
    button.disabled = true;
    try {
      const result = await state.live.act(act, query);
      button.replaceWith(h("span", { class: "result", role: "status" }, result));
      if (done) await done(result);
    } catch (error) {
      button.replaceWith(h("span", { class: "result bad", role: "alert" }, `not done: ${error.message}`));
    }
  }, onblur: () => {
    if (!sure || button.disabled) return;
    asked = false;
    button.classList.remove("sure");
    button.textContent = label;
  } }, label);
  return button;
}

const sessionOf = (film, state) => (film.parent ? film.id : state.live.name);
const undoButton = (film, state) => actButton(state, "undo this compaction", "undo", { session: sessionOf(film, state) }, { kind: "quiet undo", sure: "undo now? the next request is written to the cache anew" });

function readBackButton(state, film, handle) {
  const button = h("button", { type: "button", class: "quiet readback", onclick: async () => {
    try {
      const found = (await state.live.ask("/read", { session: sessionOf(film, state), handle })).body;
      button.replaceWith(h("div", { class: "readback" }, longText(found.text, 6000)));
    } catch (error) {
      button.replaceWith(h("span", { class: "result bad" }, error.message));
    }
  } }, "read it now");
  return button;
}

// -- Now

function nowView(film, state) {
  const around = h("div", { class: "around" }), running = h("div", { class: "cards" }), work = h("div"), earlier = h("div");
  const cards = new Map();
  const view = h("section", { class: "view", "aria-label": "Now" }, around, h("h2", { class: "sr" }, "Running"), running, work, earlier);
  let before = "", listed = "", worked = "";
  view.update = () => {
    const { sessions, budgets, waiting, dreams, jobs } = state.now, key = JSON.stringify([sessions.filter((row) => row.open).length, budgets, waiting, dreams, jobsSaid(jobs)]);
    if (key !== before && !around.querySelector(".sure")) around.replaceChildren(...aroundParts(state, (before = key)));
    const open = sessions.filter((row) => row.open), closed = sessions.filter((row) => !row.open);
    keyed(running, cards, open, (row) => nowCard(row, state));
    if (!open.length) running.replaceChildren(h("p", { class: "empty" }, "Nothing runs now. A session appears here as soon as one is open."));
    const rest = JSON.stringify(closed), queued = JSON.stringify(jobs);
    if (queued !== worked) work.replaceChildren(...jobParts(jobs, state, (worked = queued)));
    if (rest !== listed) earlier.replaceChildren(...earlierParts(closed, state, (listed = rest)));
    tellTimes(view);
  };
  view.update();
  return view;
}

// Draw only the cards whose row has changed; keep one in use, and the place of the keyboard.
function keyed(parent, cards, rows, draw) {
  const focused = document.activeElement?.dataset?.key;
  for (const name of cards.keys()) if (!rows.some((row) => row.name === name)) cards.delete(name);
  const elements = rows.map((row) => {
    const text = JSON.stringify(row), known = cards.get(row.name);
    if (known && (known.text === text || known.element.querySelector(".sure, .result"))) return known.element;
    const element = draw(row);
    cards.set(row.name, { text, element });
    return element;
  });
  if (elements.length !== parent.childNodes.length || elements.some((one, k) => parent.childNodes[k] !== one)) {
    parent.replaceChildren(...elements);
    if (focused && document.activeElement?.dataset?.key !== focused) parent.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
  }
}

function aroundParts(state) {
  const { sessions, budgets, waiting, dreams, jobs } = state.now, sum = waiting.reduce((a, one) => a + one.count, 0);
  const tile = (value, label, more) => h("div", { class: "tile" }, h("b", null, value), h("span", null, label), more || null);
  const tiles = [
    tile(count(sessions.filter((row) => row.open).length), "running"),
    ...budgets.map((one) => tile(`${usd(one.usd)} of ${usd(one.of_usd)}`, `${one.per === "day" ? "today" : `this ${one.per}`}, ${one.what}`, meter(one.usd / one.of_usd, one.usd >= one.of_usd ? "lost" : "fill"))),
    sum ? tile(count(sum), sum === 1 ? "memory waits for approval" : "memories wait for approval", h("button", { type: "button", class: "quiet", onclick: () => state.show("memories") }, "review")) : null,
    jobs.length ? tile(count(jobs.length), jobsSaid(jobs)) : null,
  ];
  const dreaming = dreams.map((one) => dreamProgress(one, state));
  return [h("div", { class: "tiles" }, tiles), ...dreaming];
}

// The background jobs of a database: failed ones first, then those that run and wait.
const JOB_STATES = { failed: ["failed", "tag bad"], doing: ["running", "tag"], todo: ["waiting", "tag calm"] };

function jobsSaid(jobs) {
  const found = Object.entries(JOB_STATES).map(([status, [name]]) => [jobs.filter((one) => one.status === status).length, name]);
  return `background ${jobs.length === 1 ? "job" : "jobs"}: ${found.filter(([n]) => n).map(([n, name]) => `${count(n)} ${name}`).join(", ")}`;
}

function jobParts(jobs, state) {
  if (!jobs.length) return [];
  return [h("h2", null, "Background jobs"),
    table("Background jobs", [["Job", (one) => one.kind], ["State", (one) => h("span", { class: JOB_STATES[one.status][1] }, JOB_STATES[one.status][0]), "word"], ["Project", (one) => one.project || "–", true], ["Session", (one) => one.session || "–", true], ["Tries", (one) => count(one.attempts)], ["Not before", (one) => (one.at ? `${minute(one.at)} UTC` : "–")], ["Last failure", (one) => one.problem || "–", true]], jobs),
    jobs.some((one) => one.status === "failed") ? h("p", null, actButton(state, "try the failed jobs again", "retry-jobs", {})) : null].filter(Boolean);
}

function dreamProgress(one, state) {
  return h("article", { class: "card running" }, h("h3", null, "A dream runs ", h("span", { class: "tag" }, one.state), h("span", { class: "soft" }, ` ${one.project}`)),
    h("p", null, `${counted(one.tools, "call")}, ${counted(one.files, "file")} changed`, h("span", { class: "soft" }, " · for ", timeSince(one.began))),
    one.text ? h("p", { class: "soft" }, one.text.slice(0, 300)) : null,
    h("p", null, actButton(state, "stop the dream", "stop-dream", { project: one.project }, { sure: "stop it? its changes are discarded" })));
}

function timeSince(at) {
  return h("time", { "data-at": at }, span(Math.max(0, Date.now() / 1000 - at)));
}

function tellTimes(view) {
  view.querySelectorAll("[data-at]").forEach((one) => (one.textContent = span(Math.max(0, Date.now() / 1000 - one.dataset.at))));
}

// The window with its thresholds: warning, compaction, and the end.
function gauge(row) {
  const end = row.window_tokens || 1, at = (tokens) => `${Math.min(100, (100 * tokens) / end)}%`;
  const level = row.tokens >= row.compact_at ? "over" : row.tokens >= row.warn_at ? "near" : "";
  const left = row.compact_at - row.tokens, next = row.compacts ? "compaction" : "the end of the window";
  const said = left > 0 ? `${short(left)} to ${next}` : `${next} is due`;
  return h("div", { class: "gauge" },
    h("div", { class: "scale", role: "meter", "aria-label": "window", "aria-valuemin": 0, "aria-valuemax": end, "aria-valuenow": row.tokens, "aria-valuetext": `${count(row.tokens)} of ${count(end)} tokens, ${said}` },
      h("i", { class: `level ${level}`, width: at(row.tokens) }),
      h("i", { class: "threshold warn", left: at(row.warn_at), title: `warning at ${count(row.warn_at)}` }),
      h("i", { class: "threshold", left: at(row.compact_at), title: `${next} at ${count(row.compact_at)}` })),
    h("p", null, h("b", null, short(row.tokens)), ` of ${short(end)}`, h("span", { class: "soft" }, ` · ${said}`)));
}

function nowCard(row, state) {
  const open = h("button", { type: "button", class: "plain", "data-key": `open:${row.name}`, onclick: () => state.follow(row.name) }, row.title);
  const cost = row.budget_usd ? [`${usd(row.usd)} of ${usd(row.budget_usd)}`, meter(row.usd / row.budget_usd, row.usd >= row.budget_usd ? "lost" : "fill")] : usd(row.usd);
  return h("article", { class: "card now running" },
    h("h3", null, open),
    h("p", { class: "doing" }, h("i", { class: "pulse", "aria-hidden": "true" }), row.doing, h("span", { class: "soft" }, " · ", timeSince(row.at), " ago")),
    row.window_tokens ? gauge(row) : null,
    h("p", { class: "cost" }, cost),
    h("p", { class: "soft facts" }, `${row.kind} · ${counted(row.calls, "call")}${row.compactions ? ` · compacted ${counted(row.compactions, "time")}` : ""} · ${row.model || "no model yet"}${row.where ? ` · ${row.where}` : ""}`),
    h("p", { class: "acts" }, sessionActs(row.name, row.title, state, row)));
}

function sessionActs(name, title, state, row) {
  const query = { session: name };
  return [
    row.open ? actButton(state, "stop", "stop", query, { sure: "stop its query?", name: title }) : null, " ",
    actButton(state, "compact", "compact", query, { sure: row.open ? "compact at its next turn?" : "compact now, without a model?", name: title }), " ",
    row.compactions ? actButton(state, "undo compaction", "undo", query, { sure: "undo the last compaction?", name: title }) : null,
  ];
}

function earlierParts(rows, state) {
  if (!rows.length) return [];
  return [h("h2", null, "Earlier"), table("Sessions that do not run", [
    ["Session", (row) => row.title], ["Kind", (row) => row.kind, "word"], ["Last used", (row) => h("span", null, timeSince(row.at), " ago")],
    ["Window", (row) => [meter(row.tokens / row.compact_at), h("span", { class: "figure" }, short(row.tokens))]], ["Calls", (row) => count(row.calls)], ["Cost", (row) => usd(row.usd)],
  ], rows, (row) => state.follow(row.name))];
}

// Ask again and again, but only while somebody looks, and at once when somebody looks again.
async function followLive(state) {
  let wake = null;
  addEventListener("focus", () => wake?.());
  for (let turn = 1; ; turn++) {
    if (!document.hidden) {
      try {
        if (state.name === "now" || turn % 5 === 0) state.now = (await state.live.ask("/now")).body;
        const grown = await state.live.film();
        if (grown) state.renew(grown);
        else if (state.name === "now") state.refresh();
        else if (turn % 3 === 0) await state.views[state.name]?.renew?.();
        setNote("");
      } catch (error) {
        setNote(`The server does not answer (${error.message}).`);
      }
    }
    await new Promise((done) => setTimeout((wake = done), EVERY));
  }
}

function setNote(text) {
  document.getElementById("note")?.remove();
  if (text) document.body.prepend(h("p", { id: "note", class: "card bad", role: "alert" }, text));
}
