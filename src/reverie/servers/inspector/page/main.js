// The page itself: one session at a time, its views, the keyboard, and the address.

const VIEWS = { film: "Film", request: "Request", compactions: "Compactions", bill: "Bill", people: "Memories, agents", search: "Search" };

class State {
  constructor(films) {
    this.films = films;
    this.n = 0;
    this.name = "film";
    this.way = "difference";
    this.film = films[0];
    this.views = {};
  }

  open(film) {
    this.film = film;
    this.views = {};
    this.n = Math.min(this.n, Math.max(0, film.requests.length - 1));
    header(this);
    this.show(this.name);
  }

  go(n, isMark) {
    this.n = Math.max(0, Math.min(this.film.requests.length - 1, n));
    this.refresh();
    if (isMark) document.querySelector(".panel .card")?.scrollIntoView({ block: "nearest" });
  }

  // Move to the next request with an act or a break.
  jump(by) {
    const events = [...new Set([...this.film.acts.filter((act) => !act.minor).map((act) => act.n), ...this.film.breaks.map((one) => one.n)])].sort((a, b) => by * (a - b));
    const found = events.find((n) => by * (n - this.n) > 0);
    if (found !== undefined) this.go(found);
  }

  show(name) {
    this.name = name in VIEWS ? name : "film";
    const build = { film: filmView, request: requestView, compactions: compactionsView, bill: billView, people: peopleView, search: searchView }[this.name];
    this.views[this.name] ||= build(this.film, this, this.films);
    document.getElementById("main").replaceChildren(this.views[this.name]);
    document.querySelectorAll("nav button").forEach((button) => button.setAttribute("aria-current", button.dataset.view === this.name ? "page" : "false"));
    this.refresh();
    if (this.name === "search") this.views.search.focusBox();
  }

  refresh() {
    this.views[this.name]?.update?.();
    try {
      history.replaceState(null, "", `#${this.name}/${this.n + 1}`);
    } catch {
      // a page without an address
    }
  }
}

function header(state) {
  const film = state.film, bill = film.bill;
  document.title = shown(`${film.title || film.id} – Reverie inspector`);
  const facts = [film.format, film.model, counted(film.requests.length, "request"), usd(bill.total.usd), bill.lost_usd > 0.005 ? `${usd(bill.lost_usd)} lost to cache breaks` : ""].filter(Boolean);
  const choose = state.films.length > 1 ? h("label", null, "Session ", h("select", { onchange: (event) => state.open(state.films[event.target.value]) }, state.films.map((one, k) => h("option", { value: k, selected: one === film }, `${one.parent ? "↳ " : ""}${(one.title || one.id).slice(0, 80)}`)))) : null;
  document.getElementById("head").replaceChildren(
    h("p", { class: "kicker" }, state.redacted ? "Inspector · texts replaced" : "Inspector"),
    h("h1", { dir: "auto" }, (film.title || film.id).slice(0, 200)),
    h("p", { class: "about" }, facts.join(" · ")),
    choose ? h("p", null, choose) : "",
    ...film.notes.map((note) => h("p", { class: "note" }, note)),
    h("nav", { "aria-label": "views" }, Object.entries(VIEWS).map(([name, label]) => h("button", { type: "button", "data-view": name, onclick: () => state.show(name) }, label)), h("button", { type: "button", class: "help", "aria-label": "keyboard help", onclick: help }, "?")));
}

function help() {
  const keys = [["← →", "request before, next request"], ["Shift ← →", "ten requests"], ["Home End", "first, last request"], ["[ ]", "event before, next event"], ["1 … 6", "views"], ["/", "search"], ["?", "this help"], ["Esc", "close"]];
  const dialog = h("dialog", { "aria-label": "keyboard" }, h("h2", null, "Keyboard"), h("dl", { class: "keys" }, keys.map(([key, what]) => h("div", null, h("dt", null, key), h("dd", null, what)))), h("form", { method: "dialog" }, h("button", { class: "main" }, "Close")));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

function onKey(event, state) {
  const typing = event.target.matches?.("input[type=search], select, textarea");
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog")) return;
  if (typing) return event.key === "Escape" ? event.target.blur() : undefined;
  if (event.target.closest?.(".scroll") && event.key.startsWith("Arrow")) return;
  const far = event.shiftKey ? 10 : 1, last = state.film.requests.length - 1;
  const acts = {
    ArrowLeft: () => state.go(state.n - far), ArrowRight: () => state.go(state.n + far),
    Home: () => state.go(0), End: () => state.go(last), "[": () => state.jump(-1), "]": () => state.jump(1),
    "/": () => state.show("search"), "?": help,
  };
  Object.keys(VIEWS).forEach((name, k) => (acts[String(k + 1)] = () => state.show(name)));
  if (!(event.key in acts) || (["Home", "End"].includes(event.key) && !["film", "request"].includes(state.name))) return;
  event.preventDefault();
  acts[event.key]();
}

async function start() {
  const data = await loadFilm();
  const films = data.sessions.map((one) => new SessionFilm(one, data.categories));
  films.forEach(scale);
  const state = new State(films);
  state.redacted = data.redacted;
  const [name, n] = location.hash.slice(1).split("/");
  if (Number(n) > 0) state.n = Math.min(Number(n), films[0].requests.length) - 1;
  if (name in VIEWS) state.name = name;
  document.addEventListener("keydown", (event) => onKey(event, state));
  state.n = Math.max(0, state.n);
  header(state);
  state.show(state.name);
  document.documentElement.dataset.ready = "yes";
}

start().catch((error) => {
  document.getElementById("main").replaceChildren(h("p", { class: "card bad" }, `This page cannot be shown: ${error}`));
  throw error;
});
