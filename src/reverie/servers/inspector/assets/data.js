"use strict";
// The data of the page: decoded once, read by every view. Nothing here touches the document but `loadFilm`.

async function loadFilm() {
  const bytes = Uint8Array.from(atob(document.getElementById("film").textContent.trim()), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

const STEP = 64; // requests between two lists that stay in memory

class SessionFilm {
  constructor(data, categories) {
    Object.assign(this, data);
    this.names = categories;
    this.kept = new Map();
    this.actsAt = groupBy(this.acts, (act) => act.n);
    this.breakAt = new Map(this.breaks.map((one) => [one.n, one]));
    this.totals = this.requests.map((row) => row.window.reduce((a, b) => a + b, 0));
    this.peak = Math.max(1, ...this.totals);
  }

  // The indexes of the messages of request n, rebuilt from the nearest stored list.
  ids(n) {
    let at = n - (n % STEP);
    while (at > 0 && !this.kept.has(at)) at -= STEP;
    let list = at > 0 ? this.kept.get(at) : splice([], this.requests[0].splice);
    for (let k = at + 1; k <= n; k++) {
      list = splice(list, this.requests[k].splice);
      if (k % STEP === 0) this.kept.set(k, list);
    }
    return list;
  }

  refs(message) {
    const content = this.messages[message].content;
    return Array.isArray(content) ? content : [content];
  }

  // The blocks of request n in the order of the provider: tools, system prompt, other fields, messages.
  parts(n) {
    const out = [];
    const head = this.heads[this.requests[n].head];
    for (const key of ["tools", "system"])
      for (const [name, refs] of head)
        if (name === key) for (const ref of [refs].flat()) out.push({ ref, role: key, where: key });
    for (const [name, ref] of head)
      if (!["tools", "system", "messages"].includes(name)) out.push({ ref, role: name, where: "option" });
    const marks = this.requests[n].marks;
    const at = new Map((marks ? marks.at : []).map(([m, b, ttl]) => [m + ":" + b, ttl]));
    this.ids(n).forEach((id, m) =>
      this.refs(id).forEach((ref, b) =>
        out.push({ ref, role: this.messages[id].role, where: "message", m, mark: at.get(m + ":" + b) }),
      ),
    );
    if (marks && marks.system) markLast(out, "system", marks.ttl);
    if (marks && marks.tools) markLast(out, "tools", marks.ttl);
    return out;
  }

  // Request n as the JSON that was sent.
  raw(n) {
    const row = this.requests[n];
    const value = (refs) => (Array.isArray(refs) ? refs.map((ref) => this.blocks[ref]) : this.blocks[refs]);
    const request = {};
    for (const [key, refs] of this.heads[row.head])
      request[key] =
        key === "messages"
          ? this.ids(n).map((id) => ({ ...this.messages[id], content: value(this.messages[id].content) }))
          : value(refs);
    const control = (ttl) => (ttl === "5m" ? { type: "ephemeral" } : { type: "ephemeral", ttl });
    const listed = (content) => (typeof content === "string" ? [{ type: "text", text: content }] : [...content]);
    const marked = (content, at, ttl) => {
      const blocks = listed(content);
      const k = at < 0 ? blocks.length + at : at;
      blocks[k] = { ...blocks[k], cache_control: control(ttl) };
      return blocks;
    };
    if (row.marks) {
      for (const [m, b, ttl] of row.marks.at)
        request.messages[m] = { ...request.messages[m], content: marked(request.messages[m].content, b, ttl) };
      if (row.marks.system && "system" in request) request.system = marked(request.system, -1, row.marks.ttl);
      if (row.marks.tools && request.tools && request.tools.length) {
        const k = request.tools.findLastIndex((tool) => !tool.defer_loading);
        if (k >= 0) request.tools[k] = { ...request.tools[k], cache_control: control(row.marks.ttl) };
      }
    }
    return request;
  }

  // The blocks that request n has and n-1 had not, and the other way round, in order.
  difference(n) {
    const now = this.parts(n);
    const before = n > 0 ? this.parts(n - 1) : [];
    const count = new Map();
    for (const one of before) count.set(one.ref, (count.get(one.ref) || 0) + 1);
    const rest = new Map(count);
    const rows = now.map((one) => {
      const left = rest.get(one.ref) || 0;
      if (left > 0) rest.set(one.ref, left - 1);
      return { ...one, change: left > 0 ? "same" : "added" };
    });
    const gone = [];
    for (let k = before.length - 1; k >= 0; k--) {
      const left = rest.get(before[k].ref) || 0;
      if (left > 0) {
        rest.set(before[k].ref, left - 1);
        gone.unshift({ ...before[k], change: "removed" });
      }
    }
    return { rows, gone };
  }

  // The first request that holds each block.
  firstSeen() {
    if (this.first) return this.first;
    this.first = new Map();
    const see = (ref, n) => this.first.has(ref) || this.first.set(ref, n);
    this.requests.forEach((row, n) => {
      for (const [key, refs] of this.heads[row.head]) if (key !== "messages") [refs].flat().forEach((ref) => see(ref, n));
      for (const id of row.splice[2]) this.refs(id).forEach((ref) => see(ref, n));
      row.reply.forEach((ref) => see(ref, n));
    });
    this.acts.forEach((act) => {
      const n = Math.min(act.n, this.requests.length - 1);
      [...act.went, ...act.stands, act.body].forEach((ref) => see(ref, n));
    });
    return this.first;
  }

  // The blocks of messages that were said up to request n, those that it holds, and the act that took each other one.
  said(n) {
    const made = new Set(this.acts.flatMap((act) => act.stands)), seen = new Set(), said = [], left = new Map();
    const add = (ref, role) => {
      if (made.has(ref) || seen.has(ref)) return;
      seen.add(ref);
      said.push({ ref, role });
    };
    for (let k = 0; k <= n; k++) {
      for (const id of this.requests[k].splice[2]) this.refs(id).forEach((ref) => add(ref, this.messages[id].role));
      if (k < n) this.requests[k].reply.forEach((ref) => add(ref, "assistant"));
    }
    for (const act of this.acts)
      if (act.n <= n && !act.undone) act.went.forEach((ref, k) => left.set(ref, { act, stands: act.went.length === act.stands.length ? act.stands[k] : undefined }));
    return { said, left, sent: new Set(this.parts(n).map((one) => one.ref)) };
  }

  text(ref) {
    return blockText(this.blocks[ref]);
  }

  // What a new block of request n cost, about: it was written to the cache, or paid in full.
  price(ref, n) {
    const row = this.requests[n];
    const rates = row.rates === null ? null : this.rates[row.rates];
    if (!rates || !row.usage) return null;
    const [, short, long] = row.usage;
    return (this.tokens[ref] * (short ? rates[1] : long ? rates[2] : rates[3])) / 1e6;
  }
}

function splice(before, [first, last, between]) {
  return [...before.slice(0, first), ...between, ...before.slice(before.length - last)];
}

function markLast(parts, where, ttl) {
  const found = parts.findLast((one) => one.where === where);
  if (found) found.mark = ttl;
}

function groupBy(rows, key) {
  const found = new Map();
  for (const row of rows) found.has(key(row)) ? found.get(key(row)).push(row) : found.set(key(row), [row]);
  return found;
}

function blockText(block) {
  if (typeof block === "string") return block;
  if (block === null || typeof block !== "object") return String(block);
  if (typeof block.text === "string") return block.text;
  if (typeof block.thinking === "string") return block.thinking;
  if (block.type === "tool_use") return JSON.stringify(block.input, null, 2);
  if (block.type === "tool_result") {
    const inner = block.content;
    return typeof inner === "string" ? inner : Array.isArray(inner) ? inner.map(blockText).join("\n") : "";
  }
  if (block.source && typeof block.source.data === "string")
    return `[${block.type}: ${block.source.media_type || ""}, ${block.source.data.length} characters of base64]`;
  return JSON.stringify(block, null, 2);
}
