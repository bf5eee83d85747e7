// Distributions of values by class or owner, as strips of bars; rows are selected by dragging over them.
import { by, count, make, on, select, shared, unit, value } from "/static/api.js";
import { hueOf } from "/static/map.js";

const BINS = 48;
const MOST = 14; // names that are drawn
const panel = by("spread");
let edges = [-1, 1];
let strips = [];

const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const findEdges = () => {
  const all = shared.columns.get("value");
  const step = Math.max(1, Math.floor(all.length / 20_000));
  const sample = [];
  for (let i = 0; i < all.length; i += step) sample.push(all[i]);
  sample.sort((a, b) => a - b);
  const [low, high] = [0.003, 0.997].map((q) => sample[Math.floor(q * (sample.length - 1))]);
  edges = high > low ? [low, high] : [low - 1e-9, low + 1e-9];
};

const bin = (x) => Math.max(0, Math.min(BINS - 1, Math.floor((BINS * (x - edges[0])) / (edges[1] - edges[0]))));

// One pass over all rows: how many in each bin of each name, and how many of these are selected.
const tally = (codes, size) => {
  const [all, chosen] = [new Uint32Array(size * BINS), new Uint32Array(size * BINS)];
  const values = shared.columns.get("value");
  const { mask, inView, selected } = shared;
  const [low, factor] = [edges[0], BINS / (edges[1] - edges[0])];
  for (let i = 0; i < values.length; i++) {
    if (inView !== null && inView[i] === 0) continue;
    let at = ((values[i] - low) * factor) | 0;
    at = at < 0 ? 0 : at >= BINS ? BINS - 1 : at;
    const k = (codes === null ? 0 : codes[i]) * BINS + at;
    all[k] += 1;
    if (selected !== 0 && mask[i] !== 0) chosen[k] += 1;
  }
  return [all, chosen];
};

const draw = () => {
  if (panel.offsetParent === null || !shared.columns.has("value")) return;
  const name = by("spread-by").value;
  const names = name === "label" ? shared.about.classes : name === "owner" ? shared.about.owners : ["All rows"];
  const codes = name ? shared.columns.get(name) : null;
  const [all, chosen] = tally(codes, names.length);
  const sizes = names.map((_, k) => all.subarray(k * BINS, (k + 1) * BINS).reduce((a, b) => a + b, 0));
  const order = names.map((_, k) => k).sort((a, b) => sizes[b] - sizes[a]);
  const drawn = order.slice(0, MOST);
  if (strips.length !== drawn.length || strips.some((strip, i) => strip.code !== drawn[i] || strip.by !== name)) build(name, names, drawn);
  const ratio = Math.min(devicePixelRatio || 1, 2);
  strips.forEach((strip) => {
    const part = all.subarray(strip.code * BINS, (strip.code + 1) * BINS);
    const own = chosen.subarray(strip.code * BINS, (strip.code + 1) * BINS);
    const total = sizes[strip.code];
    const picked = own.reduce((a, b) => a + b, 0);
    strip.count.textContent = picked ? `${count(picked)} of ${count(total)}` : count(total);
    strip.canvas.setAttribute("aria-label", `Values of ${strip.title}: ${count(total)} rows, ${count(picked)} selected`);
    const [w, h] = [strip.canvas.clientWidth, strip.canvas.clientHeight];
    [strip.canvas.width, strip.canvas.height] = [Math.round(w * ratio), Math.round(h * ratio)];
    const pen = strip.canvas.getContext("2d");
    pen.scale(ratio, ratio);
    const most = Math.max(1, ...part);
    const step = w / BINS;
    const zero = ((0 - edges[0]) / (edges[1] - edges[0])) * w;
    pen.fillStyle = style("--line");
    pen.fillRect(0, h - 1, w, 1);
    if (zero > 0 && zero < w) pen.fillRect(zero, 0, 1, h);
    const hue = codes === null ? style("--corrected") : hueOf(strip.code);
    for (let b = 0; b < BINS; b++) {
      const tall = (x) => (x ? Math.max(1.5, (h - 3) * Math.sqrt(x / most)) : 0);
      pen.globalAlpha = shared.selected ? 0.28 : 0.8;
      pen.fillStyle = hue;
      pen.fillRect(b * step, h - 1 - tall(part[b]), step - 0.6, tall(part[b]));
      if (own[b]) {
        pen.globalAlpha = 1;
        pen.fillRect(b * step, h - 1 - tall(own[b]), step - 0.6, tall(own[b]));
      }
    }
    if (strip.from !== undefined) {
      pen.globalAlpha = 0.18;
      pen.fillStyle = style("--accent");
      pen.fillRect(Math.min(strip.from, strip.to) * step, 0, (Math.abs(strip.to - strip.from) + 1) * step, h);
    }
    pen.globalAlpha = 1;
  });
};

const rowsOf = (strip, lo, hi, mask, set) => {
  const codes = strip.by ? shared.columns.get(strip.by) : null;
  const values = shared.columns.get("value");
  for (let i = 0; i < values.length; i++) {
    if ((shared.inView && !shared.inView[i]) || (codes && codes[i] !== strip.code)) continue;
    const at = bin(values[i]);
    if (at >= lo && at <= hi) mask[i] = set;
  }
};

const build = (name, names, drawn) => {
  strips = drawn.map((code) => {
    const title = names[code];
    const strip = { by: name, code, title };
    const pick = (event) =>
      select((mask) => {
        if (!event.shiftKey) mask.fill(0);
        rowsOf(strip, 0, BINS - 1, mask, 1);
      });
    strip.canvas = make("canvas", { role: "img" });
    strip.count = make("span", { class: "quiet n" });
    const dot = make("i");
    dot.style.background = name ? hueOf(code) : style("--corrected");
    strip.line = make("div", { class: "strip" }, make("button", { type: "button", title, onclick: pick }, dot, make("span", {}, title)), strip.canvas, strip.count);
    const at = (event) => {
      const edge = strip.canvas.getBoundingClientRect();
      return Math.max(0, Math.min(BINS - 1, Math.floor((BINS * (event.clientX - edge.left)) / edge.width)));
    };
    strip.canvas.addEventListener("pointerdown", (event) => {
      strip.canvas.setPointerCapture(event.pointerId);
      strip.from = strip.to = at(event);
      later();
    });
    strip.canvas.addEventListener("pointermove", (event) => {
      if (strip.from === undefined) return;
      strip.to = at(event);
      later();
    });
    strip.canvas.addEventListener("pointerup", (event) => {
      if (strip.from === undefined) return;
      const [lo, hi] = [strip.from, strip.to].sort((a, b) => a - b);
      strip.from = undefined;
      select((mask) => {
        if (!event.shiftKey && !event.altKey) mask.fill(0);
        rowsOf(strip, lo, hi, mask, event.altKey ? 0 : 1);
      });
    });
    return strip;
  });
  const more = names.length - drawn.length;
  const axis = make("div", { class: "strip axis" }, make("span", {}, more > 0 ? `and ${count(more)} more` : ""), make("span", { class: "ends" }, make("span", {}, value(edges[0])), make("span", {}, unit()), make("span", {}, value(edges[1]))), make("span", {}));
  panel.replaceChildren(...strips.map((strip) => strip.line), axis);
};

let waiting = 0;
const later = () => {
  cancelAnimationFrame(waiting);
  waiting = requestAnimationFrame(draw);
};

export const start = () => {
  const { about } = shared;
  findEdges();
  const choices = [["", "nothing"], ...(about.classes ? [["label", "class"]] : []), ...(about.owners ? [["owner", "owner"]] : [])];
  by("spread-by").append(...choices.map(([key, text]) => make("option", { value: key }, text)));
  by("spread-by").value = about.classes ? "label" : "";
  by("spread-by").addEventListener("change", draw);
  new ResizeObserver(later).observe(panel);
  on("theme", () => {
    strips = [];
    later();
  });
  for (const what of ["view", "selection", "view-shown", "columns"]) on(what, later);
};
