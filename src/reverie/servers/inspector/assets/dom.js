// Elements and numbers. Content only ever becomes text nodes and attributes that cannot hold markup.

function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "left" || name === "width") element.style[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  append(element, children);
  return element;
}

function svg(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children.flat(Infinity))
    if (child !== null && child !== undefined && child !== false) element.append(child instanceof Node ? child : shown(child));
}

// Characters that turn the direction of text or have no shape are written out, so that nothing can hide.
const UNSEEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g;

function shown(value) {
  const text = String(value);
  return text.replace(UNSEEN, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

const whole = new Intl.NumberFormat("en-US");
const count = (n) => whole.format(Math.round(n));
const short = (n) => (n >= 1e6 ? `${(n / 1e6).toFixed(2)}M` : n >= 1e4 ? `${Math.round(n / 1e3)}k` : n >= 1e3 ? `${(n / 1e3).toFixed(1)}k` : String(n));
const usd = (n) => (n === null || n === undefined ? "–" : n !== 0 && n < 0.1 ? `$${n.toFixed(4)}` : `$${n.toFixed(2)}`);
const percent = (share) => `${(100 * share).toFixed(1)} %`;
const counted = (n, word) => `${count(n)} ${word}${n === 1 ? "" : "s"}`;

function when(at) {
  return at > 1e6 ? new Date(at * 1000).toISOString().replace("T", " ").slice(0, 19) + " UTC" : "time unknown";
}

function span(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${(seconds / 3600).toFixed(1)} h` : `${(seconds / 86400).toFixed(seconds < 864000 ? 1 : 0)} days`;
}

// A table that scrolls by itself; `columns` are [heading, value of a row, true for text that wraps or "word" for one that does not].
function table(label, columns, rows, open) {
  const kind = (text) => (text === "word" ? "word" : text ? "text" : null);
  const head = h("tr", null, columns.map(([name, , text]) => h("th", { scope: "col", class: kind(text) }, name)));
  const body = rows.map((row, k) =>
    h(
      "tr",
      open ? { class: "link", onclick: () => open(row, k) } : null,
      columns.map(([, value, text], at) => {
        const cell = value(row, k);
        const [main, ...more] = [cell].flat();
        const inner = open && at === 0 ? [h("button", { class: "plain", type: "button" }, main), more] : cell;
        return at === 0 ? h("th", { scope: "row" }, inner) : h("td", { class: kind(text) }, inner);
      }),
    ),
  );
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": label },
    h("table", null, h("caption", { class: "sr" }, label), h("thead", null, head), h("tbody", null, body)),
  );
}

// A part that is built when it is opened for the first time.
function lazy(summary, build) {
  const details = h("details", { class: "lazy" }, h("summary", null, summary));
  details.addEventListener("toggle", () => details.open && details.childElementCount === 1 && details.append(build()));
  return details;
}

const LONG = 4000;

// Text of any length: the beginning at once, the rest on request.
function longText(text, limit = LONG) {
  const pre = h("pre", { dir: "auto", tabindex: "0" }, text.length > limit ? text.slice(0, limit) : text);
  if (text.length <= limit) return pre;
  const more = h("button", { type: "button", class: "quiet", onclick: () => {
    pre.textContent = shown(text);
    more.remove();
  } }, `show all ${count(text.length)} characters`);
  return h("div", null, pre, more);
}

function meter(share, kind) {
  return h("span", { class: "meter" }, h("span", { class: kind || "fill", width: `${Math.max(0.5, Math.min(100, share * 100))}%` }));
}

function copyable(command) {
  const button = h("button", { type: "button", class: "quiet", "aria-label": `copy: ${shown(command)}`, onclick: () => {
    navigator.clipboard?.writeText(command).then(() => (button.textContent = "copied"), () => {});
  } }, "copy");
  return h("span", { class: "command" }, h("code", null, command), " ", navigator.clipboard ? button : null);
}
