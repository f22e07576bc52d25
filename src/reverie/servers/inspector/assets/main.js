// The page itself: one session at a time, its views and those of the whole home, the keyboard, and the address.

const HOME = { now: "Now", memories: "Memories", dreams: "Dreams", agents: "Agents", costs: "Costs", search: "Search" };
const SESSION = { film: "Film", request: "Request", compactions: "Compactions", bill: "Bill", people: "Memories and agents", replay: "Replay", search: "Search" };
const BUILD = { now: nowView, memories: memoriesView, dreams: dreamsView, agents: agentsView, costs: costsView, film: filmView, request: requestView, compactions: compactionsView, bill: billView, people: peopleView, replay: replayView, search: searchView };
const OF_HOME = ["now", "memories", "dreams", "agents", "costs"];

class State {
  constructor(films, replay) {
    this.films = films;
    this.replay = replay;
    this.n = 0;
    this.name = replay ? "replay" : "film";
    this.way = "difference";
    this.days = 30;
    this.words = "";
    this.film = films[0] || null;
    this.views = {};
    this.now = null;
    this.live = null;
    this.memory = null;
  }

  get homeNames() {
    return this.live ? Object.keys(HOME) : [];
  }

  get sessionNames() {
    if (!this.film) return this.replay ? ["replay"] : [];
    return Object.keys(SESSION).filter((name) => (name === "replay" ? this.live && !this.film.parent : name !== "search" || !this.live));
  }

  get names() {
    return [...this.homeNames, ...this.sessionNames];
  }

  // Show the film of another session of a live page, from its end.
  async follow(name, view = "film") {
    try {
      this.live.choose(name);
      const data = await this.live.film();
      this.films = [];
      this.n = Infinity;
      this.name = view;
      this.renew(data);
      scrollTo(0, 0);
    } catch (error) {
      setNote(`${name} cannot be opened: ${error.message}`);
    }
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
    const kept = OF_HOME.filter((name) => this.views[name]).map((name) => [name, this.views[name]]);
    this.views = Object.fromEntries(kept);
    this.n = Math.max(0, Math.min(this.n, film.requests.length - 1));
    header(this);
    this.show(this.name);
  }

  // Close the session of a live page.
  leave() {
    this.live.choose("");
    this.film = null;
    this.films = [];
    this.views = {};
    this.show("now");
    header(this);
    this.show("now");
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
    const isNew = name !== this.name || !this.views[name];
    this.name = this.names.includes(name) ? name : this.names[0];
    this.views[this.name] ||= BUILD[this.name](this.film, this, this.films);
    const view = this.views[this.name];
    document.getElementById("main").replaceChildren(view);
    document.querySelectorAll("nav button").forEach((button) => button.setAttribute("aria-current", button.dataset.view === this.name ? "page" : "false"));
    if (isNew && OF_HOME.includes(this.name)) view.renew?.();
    this.refresh();
    if (this.name === "search") view.focusBox();
  }

  refresh() {
    this.views[this.name]?.update?.();
    clearTimeout(this.addressing);
    this.addressing = setTimeout(() => this.address(), 100); // a browser allows few changes of the address a second
  }

  address() {
    try {
      history.replaceState(null, "", OF_HOME.includes(this.name) || !this.film ? `#${this.name}` : `#${this.name}/${this.n + 1}`);
    } catch {
      // a page without an address
    }
  }
}

const tab = (state, name, label) => h("button", { type: "button", "data-view": name, onclick: () => state.show(name) }, label);

function header(state) {
  const film = state.film, about = state.redacted ? "texts replaced" : state.replay ? "replay" : "";
  const help = h("button", { type: "button", class: "help", "aria-label": "keyboard help", onclick: showHelp }, "?");
  const brand = h("p", { class: "brand" }, h("b", null, "Reverie"), h("span", null, ` inspector${about ? ` · ${about}` : ""}`));
  const home = state.homeNames.length ? h("nav", { "aria-label": "home" }, state.homeNames.map((name) => tab(state, name, HOME[name]))) : null;
  document.getElementById("head").replaceChildren(...[
    h("div", { class: "top" }, brand, home, help),
    film ? sessionHead(state, film) : state.replay ? replayHead(state.replay) : h("h1", { class: "sr" }, "Sessions of this home"),
    film ? h("nav", { "aria-label": "session", class: "session" }, state.sessionNames.map((name) => tab(state, name, SESSION[name]))) : null,
  ].filter(Boolean));
  if (!film) document.title = state.replay ? "Replay – Reverie" : "Reverie inspector";
}

function replayHead(data) {
  return h("div", { class: "title" }, h("h1", null, data.headline[0], h("b", null, data.headline[1]), data.headline[2]), h("p", { class: "about" }, data.about));
}

function sessionHead(state, film) {
  const bill = film.bill;
  document.title = shown(`${film.title || film.id} – Reverie inspector`);
  const facts = [film.format, film.model, counted(film.requests.length, "request"), usd(bill.total.usd), bill.lost_usd > 0.005 ? `${usd(bill.lost_usd)} lost to cache breaks` : ""].filter(Boolean);
  const choose = state.films.length > 1 ? h("p", null, h("label", null, "Session ", h("select", { onchange: (event) => state.open(state.films[event.target.value]) }, state.films.map((one, k) => h("option", { value: k, selected: one === film }, `${one.parent ? "↳ " : ""}${(one.title || one.id).slice(0, 80)}`))))) : null;
  const row = state.live && state.now?.sessions.find((one) => one.name === state.live.name || one.name.endsWith(`/${state.live.name}`));
  const close = state.live ? h("button", { type: "button", class: "quiet", onclick: () => state.leave() }, "close") : null;
  return h("div", { class: "title" },
    h("h1", { dir: "auto" }, (film.title || film.id).slice(0, 200)),
    h("p", { class: "about" }, facts.join(" · ")),
    row || close ? h("p", { class: "acts" }, row ? sessionActs(row.name, row.title, state, row) : null, " ", close) : null,
    choose,
    film.notes.map((note) => h("p", { class: "note" }, note)));
}

function showHelp() {
  const keys = [["← →", "request before, next request"], ["Shift ← →", "ten requests"], ["Home End", "first, last request"], ["[ ]", "event before, next event"], ["1 2 3 …", "views, in the order of the tabs"], ["/", "search"], ["?", "this help"], ["Esc", "close"]];
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
  const keys = { "?": showHelp };
  if (state.names.includes("search")) keys["/"] = () => state.show("search");
  state.names.slice(0, 9).forEach((name, k) => (keys[String(k + 1)] = () => state.show(name)));
  if (state.film && ["film", "request"].includes(state.name)) {
    const far = event.shiftKey ? 10 : 1;
    Object.assign(keys, { ArrowLeft: () => state.go(state.n - far), ArrowRight: () => state.go(state.n + far), Home: () => state.go(0), End: () => state.go(state.film.requests.length - 1), "[": () => state.jump(-1), "]": () => state.jump(1) });
  }
  if (!(event.key in keys)) return;
  event.preventDefault();
  keys[event.key]();
}

async function start() {
  const data = await loadFilm();
  const films = (data.sessions || []).map((one) => new SessionFilm(one, data.categories));
  films.forEach(scale);
  const state = new State(films, data.replay || null), [name, n] = location.hash.slice(1).split("/");
  state.redacted = data.redacted;
  if (data.live) await startLive(state);
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
  state.now = (await state.live.ask("/now")).body;
  state.name = "now";
  if (state.now.target) await state.follow(state.now.target);
  addEventListener("hashchange", () => location.hash.includes("token=") && location.reload());
  followLive(state);
}

start().catch((error) => {
  document.getElementById("main").replaceChildren(h("p", { class: "card bad" }, `This page cannot be shown: ${error}`));
  throw error;
});
