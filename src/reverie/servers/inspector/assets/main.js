// The page itself: one session at a time, its views, the keyboard, and the address.

const VIEWS = { now: "Now", film: "Film", request: "Request", compactions: "Compactions", bill: "Bill", people: "Memories, agents", search: "Search" };

class State {
  constructor(films) {
    this.films = films;
    this.n = 0;
    this.name = "film";
    this.way = "difference";
    this.film = films[0] || null;
    this.views = {};
    this.rows = [];
    this.live = null;
  }

  get names() {
    return Object.keys(VIEWS).filter((name) => (name === "now" ? this.live : this.film));
  }

  // Show the film of another session of a live page, from its end.
  async follow(name) {
    this.live.choose(name);
    const data = await this.live.film();
    this.films = [];
    this.n = Infinity;
    this.name = "film";
    this.renew(data);
  }

  // Take a new film of the open session; stay at the end if that was shown.
  renew(data) {
    const old = this.film, atEnd = !this.films.length || !old || this.n >= old.requests.length - 1;
    this.films = data.sessions.map((one) => new SessionFilm(one, data.categories));
    this.films.forEach(scale);
    this.film = this.films.find((one) => old && one.id === old.id) || this.films[0];
    if (atEnd) this.n = this.film.requests.length - 1;
    this.open(this.film);
  }

  open(film) {
    this.film = film;
    this.views = {};
    this.n = Math.max(0, Math.min(this.n, film.requests.length - 1));
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
    this.name = this.names.includes(name) ? name : this.names[0];
    const build = { now: nowView, film: filmView, request: requestView, compactions: compactionsView, bill: billView, people: peopleView, search: searchView }[this.name];
    this.views[this.name] ||= build(this.film, this, this.films);
    document.getElementById("main").replaceChildren(this.views[this.name]);
    document.querySelectorAll("nav button").forEach((button) => button.setAttribute("aria-current", button.dataset.view === this.name ? "page" : "false"));
    this.refresh();
    if (this.name === "search") this.views.search.focusBox();
  }

  refresh() {
    this.views[this.name]?.update?.();
    try {
      history.replaceState(null, "", this.name === "now" ? "#now" : `#${this.name}/${this.n + 1}`);
    } catch {
      // a page without an address
    }
  }
}

function navigation(state) {
  return h("nav", { "aria-label": "views" }, state.names.map((name) => h("button", { type: "button", "data-view": name, onclick: () => state.show(name) }, VIEWS[name])), h("button", { type: "button", class: "help", "aria-label": "keyboard help", onclick: help }, "?"));
}

function header(state) {
  if (!state.film) return document.getElementById("head").replaceChildren(h("p", { class: "kicker" }, "Inspector"), h("h1", null, "Sessions of this home"), navigation(state));
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
    navigation(state));
}

function help() {
  const keys = [["← →", "request before, next request"], ["Shift ← →", "ten requests"], ["Home End", "first, last request"], ["[ ]", "event before, next event"], ["1 … 7", "views"], ["/", "search"], ["?", "this help"], ["Esc", "close"]];
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
  if (!state.film && event.key !== "?") return;
  const far = event.shiftKey ? 10 : 1, last = state.film ? state.film.requests.length - 1 : 0;
  const acts = {
    ArrowLeft: () => state.go(state.n - far), ArrowRight: () => state.go(state.n + far),
    Home: () => state.go(0), End: () => state.go(last), "[": () => state.jump(-1), "]": () => state.jump(1),
    "/": () => state.show("search"), "?": help,
  };
  state.names.forEach((name, k) => (acts[String(k + 1)] = () => state.show(name)));
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
  if (data.live) await startLive(state);
  const [name, n] = location.hash.slice(1).split("/");
  if (Number(n) > 0 && state.film) state.n = Math.min(Number(n), state.film.requests.length) - 1;
  if (state.names.includes(name)) state.name = name;
  document.addEventListener("keydown", (event) => onKey(event, state));
  state.n = Math.max(0, state.n);
  header(state);
  state.show(state.name);
  document.documentElement.dataset.ready = "yes";
}

async function startLive(state) {
  state.live = new Live();
  if (!state.live.token) throw new Error("the address lacks its token; open the whole address that the command printed");
  const { sessions, target } = (await state.live.now()).body;
  state.rows = sessions;
  state.name = "now";
  if (target) await state.follow(target);
  addEventListener("hashchange", () => location.hash.includes("token=") && location.reload());
  followLive(state);
}

start().catch((error) => {
  document.getElementById("main").replaceChildren(h("p", { class: "card bad" }, `This page cannot be shown: ${error}`));
  throw error;
});
