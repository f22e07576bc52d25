// The page on loopback: which sessions run now, and the film of one of them as it grows.

const EVERY = 2000;

class Live {
  constructor() {
    const given = new URLSearchParams(location.hash.slice(1)).get("token");
    if (given) sessionStorage.setItem("token", given);
    this.token = given || sessionStorage.getItem("token") || "";
    this.name = "";
    this.tag = "";
  }

  async undo(name) {
    return (await this.ask(`/undo?session=${encodeURIComponent(name)}`, "", "POST")).body.result;
  }

  async ask(path, tag, method = "GET") {
    const headers = { Authorization: `Bearer ${this.token}` };
    if (tag) headers["If-None-Match"] = `"${tag}"`;
    const answer = await fetch(path, { method, headers, cache: "no-store" });
    if (answer.status === 304) return null;
    if (!answer.ok) throw new Error(await answer.text());
    return { tag: (answer.headers.get("etag") || "").replaceAll('"', ""), body: await answer.json() };
  }

  now() {
    return this.ask("/now");
  }

  // The film of the open session if it has grown; null otherwise.
  async film() {
    if (!this.name) return null;
    const found = await this.ask(`/film?session=${encodeURIComponent(this.name)}`, this.tag);
    if (found) this.tag = found.tag;
    return found && found.body;
  }

  choose(name) {
    this.name = name;
    this.tag = "";
  }
}

function nowView(film, state) {
  const view = h("section", { class: "view", "aria-label": "Now" }, h("p", { class: "lead" }, "The sessions and agents of this home that were used last. One click opens the film of a session, which grows as it runs."), h("div", { class: "cards", "aria-live": "off" }));
  view.update = () => view.lastChild.replaceChildren(...(state.rows.length ? state.rows.map((row) => nowCard(row, state)) : [h("p", null, "No sessions yet.")]));
  view.update();
  return view;
}

function nowCard(row, state) {
  const share = row.tokens / row.compact_at, ago = Math.max(0, Date.now() / 1000 - row.at);
  return h("article", { class: row.open ? "card now running" : "card now" },
    h("h3", null, h("button", { type: "button", class: "plain", onclick: () => state.follow(row.name) }, row.title), " ", row.open ? h("span", { class: "tag" }, "running") : null),
    h("p", null, row.doing, h("span", { class: "soft" }, ` · ${span(ago)} ago · ${row.model || "no model yet"}`)),
    h("p", null, meter(share, share > 0.9 ? "lost" : "fill"), ` ${short(row.tokens)} of ${short(row.window_tokens)} tokens`, h("span", { class: "soft" }, row.compact_at > row.tokens ? ` · compacts in ${short(row.compact_at - row.tokens)}` : " · compaction is due")),
    h("p", { class: "soft" }, `${row.name} · ${usd(row.usd)} · ${counted(row.calls, "call")}${row.compactions ? ` · compacted ${counted(row.compactions, "time")}` : ""}`));
}

// Ask again and again, but only while somebody looks.
async function followLive(state) {
  for (;;) {
    if (!document.hidden) {
      try {
        if (state.name === "now") state.rows = (await state.live.now()).body.sessions;
        const grown = await state.live.film();
        if (grown) state.renew(grown);
        else if (state.name === "now") state.refresh();
        setNote("");
      } catch (error) {
        setNote(`The server does not answer (${error.message}).`);
      }
    }
    await new Promise((done) => setTimeout(done, EVERY));
  }
}

function setNote(text) {
  document.getElementById("note")?.remove();
  if (text) document.body.prepend(h("p", { id: "note", class: "card bad", role: "alert" }, text));
}
