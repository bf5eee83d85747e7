// The map of the rows: all of them on one canvas, as discs where they are few, as a density where they are many.
import { by, count, ensure, make, on, percent, said, select, shared, tell, unit, value } from "/static/api.js";
import { moveToRow } from "/static/table.js";

const DISCS = 20_000; // rows up to which each is a disc
const canvas = by("map");
const box = by("map-box");
const lasso = by("lasso");
let axes = ["x", "y"];
let home = null; // [x0, x1, y0, y1] that shows nearly all rows
let seen = null;
let colours = [];
let codeOf = null; // row to colour
let drag = null;
let touches = new Map();

const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const rgb = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));

// Colours

const SHADES = 9;
const palette = () => Array.from({ length: 8 }, (_, i) => style(`--hue${i}`));
const blend = (a, b, share) => rgb(a).map((x, i) => Math.round(x + share * (rgb(b)[i] - x)));
const hex = (parts) => `#${parts.map((x) => x.toString(16).padStart(2, "0")).join("")}`;

export const hueOf = (code) => palette()[code % 8];

const colourBy = () => {
  const name = by("map-by").value;
  const { columns, about } = shared;
  const legend = by("map-legend");
  legend.replaceChildren();
  const key = (colour, text) => {
    const dot = make("i");
    dot.style.background = colour;
    legend.append(make("span", { class: "key" }, dot, text));
  };
  if (name === "label" || name === "owner") {
    const names = name === "label" ? about.classes : about.owners;
    const hues = palette();
    codeOf = columns.get(name);
    colours = names.map((_, i) => hues[i % 8]);
    names.slice(0, 6).forEach((text, i) => key(hues[i], text));
    if (names.length > 6) legend.append(make("span", { class: "quiet" }, `and ${count(names.length - 6)} more`));
  } else if (name === "decision") {
    codeOf = columns.get("decision");
    colours = [style("--muted"), style("--stable"), style("--unstable"), style("--accent"), style("--shifts")];
    ["none", "keep", "drop", "relabel", "weight"].forEach((text, i) => key(colours[i], text));
  } else {
    const column = columns.get(name);
    const diverging = name === "value" || name === "after" || name === "label";
    const reach = quantile(column, 0.98, diverging) || 1;
    codeOf = new Uint8Array(column.length);
    const [low, middle, high] = [style("--noisy"), style("--middle"), style("--corrected")];
    for (let i = 0; i < column.length; i++) {
      const share = Number.isNaN(column[i]) ? 0 : Math.max(-1, Math.min(1, column[i] / reach));
      codeOf[i] = Math.round(SHADES * Math.sign(share) * Math.abs(share) ** 0.7) + SHADES;
    }
    const far = name === "suspicion" ? style("--unstable") : high;
    colours = Array.from({ length: 2 * SHADES + 1 }, (_, i) => {
      const share = (i - SHADES) / SHADES;
      return hex(blend(middle, share < 0 ? low : far, Math.abs(share)));
    });
    const shown = name === "suspicion" ? percent : value;
    const scale = make("span", { class: name === "suspicion" ? "ramp doubt" : "ramp" });
    legend.append(make("span", {}, diverging ? shown(-reach) : shown(0)), scale, make("span", {}, `${shown(reach)} ${name === "suspicion" ? "" : unit()}`));
  }
};

const quantile = (column, q, absolute) => {
  const step = Math.max(1, Math.floor(column.length / 20_000));
  const sample = [];
  for (let i = 0; i < column.length; i += step) if (!Number.isNaN(column[i])) sample.push(absolute ? Math.abs(column[i]) : column[i]);
  sample.sort((a, b) => a - b);
  return sample[Math.floor(q * (sample.length - 1))] ?? 0;
};

// From rows to pixels

const places = () => axes.map((name) => shared.columns.get(name));
const frame = () => {
  home = places().flatMap((column) => {
    const [low, high] = [quantile(column, 0.001), quantile(column, 0.999)];
    const margin = 0.06 * (high - low) || 1;
    return [low - margin, high + margin];
  });
  seen = [...home];
};

const project = () => {
  const [w, h] = [canvas.clientWidth, canvas.clientHeight];
  const [x0, x1, y0, y1] = seen;
  return { w, h, sx: w / (x1 - x0), sy: h / (y1 - y0), x0, y1 };
};

let last = 0;
export const draw = () => {
  const [xs, ys] = places();
  if (!xs || !ys || canvas.offsetParent === null || !codeOf) return;
  if (!home) frame();
  const began = performance.now();
  const ratio = Math.min(devicePixelRatio || 1, 2);
  const { w, h, sx, sy, x0, y1 } = project();
  if (canvas.width !== Math.round(w * ratio)) canvas.width = Math.round(w * ratio);
  if (canvas.height !== Math.round(h * ratio)) canvas.height = Math.round(h * ratio);
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, w, h);
  const { mask, selected, inView } = shared;
  const decided = shared.columns.get("decision");
  const n = xs.length;
  if (n <= DISCS) {
    const r = n < 300 ? 4.5 : n < 2000 ? 3.4 : n < 8000 ? 2.4 : 1.8;
    const passes = selected ? [0, 1] : [1];
    for (const pass of passes) {
      pen.globalAlpha = selected && !pass ? 0.25 : 0.85;
      for (let i = 0; i < n; i++) {
        if ((inView && !inView[i]) || (selected && mask[i] !== pass)) continue;
        const [px, py] = [(xs[i] - x0) * sx, (y1 - ys[i]) * sy];
        if (!(px > -5 && px < w + 5 && py > -5 && py < h + 5)) continue;
        pen.fillStyle = colours[codeOf[i]];
        if (decided[i] === 2) {
          pen.fillRect(px - r, py - 0.8, 2 * r, 1.6); // a dropped row is a stroke
          continue;
        }
        pen.beginPath();
        pen.arc(px, py, r, 0, 6.2832);
        pen.fill();
      }
    }
  } else density(pen, ratio, xs, ys);
  pen.globalAlpha = 1;
  const a = shared.active;
  if (a >= 0 && Number.isFinite(xs[a])) {
    pen.strokeStyle = style("--ink");
    pen.lineWidth = 2;
    pen.beginPath();
    pen.arc((xs[a] - x0) * sx, (y1 - ys[a]) * sy, 8, 0, 6.2832);
    pen.stroke();
  }
  last = performance.now() - began;
  canvas.dataset.milliseconds = last.toFixed(1);
};

// Pixels count their rows: colour of the last one, stronger where there are more; selected rows lie on top.
const density = (pen, ratio, xs, ys) => {
  const { x0, y1, sx, sy } = project();
  const [W, H] = [canvas.width, canvas.height];
  const image = pen.createImageData(W, H);
  const pixels = new Uint32Array(image.data.buffer);
  const counts = new Uint16Array(W * H);
  const codes = new Uint16Array(W * H);
  const { mask, selected, inView } = shared;
  const [kx, ky] = [sx * ratio, sy * ratio];
  const top = new Uint8Array(selected ? W * H : 0);
  for (let i = 0; i < xs.length; i++) {
    if (inView !== null && inView[i] === 0) continue;
    const px = ((xs[i] - x0) * kx) | 0;
    const py = ((y1 - ys[i]) * ky) | 0;
    if (px <= 0 || py <= 0 || px >= W - 1 || py >= H - 1) continue;
    const at = py * W + px;
    if (selected) {
      if (mask[i]) top[at] = 1;
      else if (top[at]) continue;
    }
    if (counts[at] < 65_535) counts[at] += 1;
    codes[at] = codeOf[i];
  }
  const hues = colours.map(rgb);
  let most = 1;
  for (let at = 0; at < counts.length; at++) if (counts[at] > most) most = counts[at];
  const strength = new Uint8Array(most + 1);
  for (let k = 1; k <= most; k++) strength[k] = 70 + (185 * Math.log1p(k)) / Math.log1p(most);
  for (let at = 0; at < counts.length; at++) {
    if (!counts[at]) continue;
    const [r, g, b] = hues[codes[at]];
    let alpha = strength[counts[at]];
    if (selected) alpha = top[at] ? 255 : alpha * 0.22;
    pixels[at] = (alpha << 24) | (b << 16) | (g << 8) | r;
  }
  pen.putImageData(image, 0, 0);
};

let waiting = 0;
const later = () => {
  cancelAnimationFrame(waiting);
  waiting = requestAnimationFrame(draw);
};

// Selecting and moving

const within = (x0, x1, y0, y1) => {
  const [xs, ys] = places();
  const { inView } = shared;
  if (!xs || !ys) return () => {};
  return (mask, set) => {
    for (let i = 0; i < xs.length; i++) {
      if (xs[i] >= x0 && xs[i] <= x1 && ys[i] >= y0 && ys[i] <= y1 && (!inView || inView[i])) mask[i] = set;
    }
  };
};

const zoom = (factor, at = [0.5, 0.5]) => {
  if (!seen) return;
  const [x0, x1, y0, y1] = seen;
  const [cx, cy] = [x0 + at[0] * (x1 - x0), y1 - at[1] * (y1 - y0)];
  seen = [cx + (x0 - cx) * factor, cx + (x1 - cx) * factor, cy + (y0 - cy) * factor, cy + (y1 - cy) * factor];
  later();
};
const move = (dx, dy) => {
  if (!seen) return;
  const [x0, x1, y0, y1] = seen;
  const [w, h] = [dx * (x1 - x0), dy * (y1 - y0)];
  seen = [x0 + w, x1 + w, y0 + h, y1 + h];
  later();
};
const selectView = () => {
  if (!seen) return;
  const fill = within(...seen);
  select((mask) => {
    mask.fill(0);
    fill(mask, 1);
  });
};

const nearest = (px, py) => {
  const [xs, ys] = places();
  if (!xs || !ys) return -1;
  const { x0, y1, sx, sy } = project();
  let [best, found] = [14 ** 2, -1];
  for (let i = 0; i < xs.length; i++) {
    if (shared.inView && !shared.inView[i]) continue;
    const d = ((xs[i] - x0) * sx - px) ** 2 + ((y1 - ys[i]) * sy - py) ** 2;
    if (d < best) [best, found] = [d, i];
  }
  return found;
};

const spot = (event) => {
  const edge = canvas.getBoundingClientRect();
  return [event.clientX - edge.left, event.clientY - edge.top];
};

canvas.addEventListener("pointerdown", (event) => {
  if (event.button > 1 || !seen) return;
  canvas.setPointerCapture(event.pointerId);
  touches.set(event.pointerId, spot(event));
  const moves = by("map-mode").getAttribute("aria-pressed") === "true" || event.button === 1;
  drag = { from: spot(event), to: spot(event), moves, add: event.shiftKey, remove: event.altKey };
});
canvas.addEventListener("pointermove", (event) => {
  if (!drag) return;
  const at = spot(event);
  const { w, h } = project();
  if (touches.size === 2) {
    const other = [...touches.entries()].find(([id]) => id !== event.pointerId)[1];
    const before = touches.get(event.pointerId);
    const span = (p) => Math.hypot(p[0] - other[0], p[1] - other[1]) || 1;
    zoom(span(before) / span(at), [other[0] / w, other[1] / h]);
    drag.pinched = true;
  } else if (drag.moves) move((drag.to[0] - at[0]) / w, (at[1] - drag.to[1]) / h);
  touches.set(event.pointerId, at);
  drag.to = at;
  lasso.hidden = drag.moves || drag.pinched || touches.size > 1;
  const [x, y] = [0, 1].map((k) => Math.min(drag.from[k], at[k]));
  Object.assign(lasso.style, { left: `${x}px`, top: `${y}px`, width: `${Math.abs(at[0] - drag.from[0])}px`, height: `${Math.abs(at[1] - drag.from[1])}px` });
});
const end = (event) => {
  touches.delete(event.pointerId);
  if (!drag || touches.size) return;
  const { from, to, moves, add, remove, pinched } = drag;
  drag = null;
  lasso.hidden = true;
  if (pinched) return;
  const { x0, y1, sx, sy } = project();
  if (Math.hypot(to[0] - from[0], to[1] - from[1]) < 5) {
    const found = nearest(...to);
    if (found >= 0) {
      moveToRow(found);
      tell("open");
    } else if (!add && !remove && shared.selected) select((mask) => mask.fill(0));
    return;
  }
  if (moves) return;
  const [ax, bx] = [from[0], to[0]].sort((a, b) => a - b);
  const [ay, by_] = [from[1], to[1]].sort((a, b) => a - b);
  const fill = within(x0 + ax / sx, x0 + bx / sx, y1 - by_ / sy, y1 - ay / sy);
  select((mask) => {
    if (!add && !remove) mask.fill(0);
    fill(mask, remove ? 0 : 1);
  });
};
canvas.addEventListener("pointerup", end);
canvas.addEventListener("pointercancel", () => {
  touches.clear();
  drag = null;
  lasso.hidden = true;
});
canvas.addEventListener(
  "wheel",
  (event) => {
    event.preventDefault();
    if (!seen) return;
    const [px, py] = spot(event);
    const { w, h } = project();
    zoom(event.deltaY > 0 ? 1.2 : 1 / 1.2, [px / w, py / h]);
  },
  { passive: false },
);
canvas.addEventListener("keydown", (event) => {
  const steps = { ArrowLeft: [-0.1, 0], ArrowRight: [0.1, 0], ArrowUp: [0, 0.1], ArrowDown: [0, -0.1] };
  if (event.key in steps) move(...steps[event.key]);
  else if (event.key === "+" || event.key === "=") zoom(1 / 1.3);
  else if (event.key === "-") zoom(1.3);
  else if (event.key === "0") by("map-home").click();
  else if (event.key === "Enter") selectView();
  else return;
  event.preventDefault();
  event.stopPropagation();
});
by("map-mode").addEventListener("click", () => {
  const on_ = by("map-mode").getAttribute("aria-pressed") !== "true";
  by("map-mode").setAttribute("aria-pressed", String(on_));
  canvas.classList.toggle("moves", on_);
});
by("map-in").addEventListener("click", () => zoom(1 / 1.4));
by("map-out").addEventListener("click", () => zoom(1.4));
by("map-home").addEventListener("click", () => {
  home = null;
  later();
});
by("map-view").addEventListener("click", selectView);

const choices = () => {
  const { about, state } = shared;
  const fill = (id, list, wanted) => {
    const now = by(id).value || wanted;
    by(id).replaceChildren(...list.map(([key, text]) => make("option", { value: key }, text)));
    by(id).value = list.some(([key]) => key === now) ? now : list[0]?.[0] ?? "";
  };
  const features = about.numeric.map(({ name, place }) => [`feature:${place}`, name]);
  const more = state.known.includes("suspicion") ? [["suspicion", "suspicion"]] : [];
  fill("map-x", [["x", "1st component"], ...features, ["value", "value"], ...more], "x");
  fill("map-y", [["y", "2nd component"], ...features, ["value", "value"], ...more], "y");
  const names = [...(about.classes ? [["label", "class"]] : []), ["value", "value"], ...(about.owners ? [["owner", "owner"]] : []), ...more, ["decision", "decision"]];
  fill("map-by", names, names[0][0]);
};

const rechoose = async (reset) => {
  const wanted = [by("map-x").value, by("map-y").value];
  const there = (name) => shared.state.known.includes(name) || name.startsWith("feature:");
  if (!wanted.every(there)) return;
  await ensure(...wanted, by("map-by").value);
  const changed = wanted.some((name, k) => name !== axes[k]);
  axes = wanted;
  if (changed || reset) home = null;
  colourBy();
  later();
};

export const start = () => {
  choices();
  for (const id of ["map-x", "map-y", "map-by"]) by(id).addEventListener("change", () => said(rechoose(false)));
  new ResizeObserver(later).observe(box);
  on("columns", () => {
    choices();
    said(rechoose(false));
  });
  on("theme", () => {
    if (codeOf) colourBy();
    later();
  });
  for (const what of ["view", "selection", "active", "view-shown"]) on(what, later);
};
