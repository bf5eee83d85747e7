// The table of all rows: only those in sight are there, and they are asked for when they are.
import { by, count, get, make, on, percent, said, select, shared, tell, unit, value } from "/static/api.js";

const HEIGHT = 34; // as in app.css
const TALLEST = 8_000_000; // pixels: browsers lay out no more than some thirty million
const AROUND = 25;
const grid = by("grid");
const space = by("space");
const known = new Map(); // row to what the server said of it
let sort = { sort: "value", descending: false };
let columns = [];
let cursor = 0; // place of the active row in the order
let anchor = null;
let pool = [];
let asking = "";
let version = 0; // of what is known: older rows are shown until newer ones come

export const sorting = () => sort;

const defineColumns = () => {
  const { about } = shared;
  const numbers = new Set(shared.state.known);
  columns = [
    { key: "", name: "", class: "tick" },
    { key: "id", name: "Row", class: "id" },
    { key: "label", name: about.task === "class" ? "Class" : "Target", class: "label" },
    ...(about.owners ? [{ key: "owner", name: "Owner", class: "label" }] : []),
    { key: "value", name: "Value", class: "n" },
    { key: "low", name: "Interval", class: "band" },
    { key: "suspicion", name: "Suspect", class: "n", off: !numbers.has("suspicion") },
    { key: "decision", name: "Decision", class: "act" },
    { key: "copies", name: "Copies", class: "n", off: !numbers.has("copies") },
    { key: "after", name: "After", class: "n" },
    ...about.shown.map(({ name, place }, k) => ({ key: `feature:${place}`, name, class: "cell", cell: k })),
  ].filter((column) => !column.off);
};

const template = () => {
  const width = { tick: "2.25rem", act: "6.5rem", id: "5.4rem", label: "6.2rem", n: "5.4rem", band: "6rem", cell: "6.5rem" };
  const needed = columns.map((column) => width[column.class]);
  grid.style.setProperty("--columns", needed.join(" "));
  grid.style.setProperty("--wide", needed.map((one) => parseFloat(one)).reduce((a, b) => a + b, 0) + "rem");
};

const heads = () => {
  by("heads").replaceChildren(
    ...columns.map((column, place) => {
      const sorted = column.key && sort.sort === column.key;
      const head = make("div", { role: "columnheader", class: `h ${column.class}`, "aria-colindex": place + 1, "aria-sort": sorted ? (sort.descending ? "descending" : "ascending") : null });
      if (column.key) {
        head.append(make("button", { type: "button", tabindex: "-1", title: column.name, onclick: () => sortBy(column.key) }, column.name));
      } else {
        const all = make("input", { type: "checkbox", tabindex: "-1", "aria-label": "Select all rows of the table", onclick: () => tickAll(all.checked) });
        head.append(all);
      }
      return head;
    }),
  );
};

const tickAll = (on_) =>
  select((mask) => {
    for (const at of shared.order) mask[at] = on_ ? 1 : 0;
  });

const sortBy = (key) => {
  // Numbers start with what one looks for: the least valuable, and the most suspect.
  const falls = ["suspicion", "copies", "decision"].includes(key);
  sort = { sort: key, descending: sort.sort === key ? !sort.descending : falls };
  heads();
  tell("sort");
};

// Which rows are in sight

const tall = () => Math.min(shared.order.length * HEIGHT, TALLEST);
const sight = () => Math.max(1, Math.floor((grid.clientHeight - by("heads").offsetHeight) / HEIGHT));
const most = () => Math.max(0, shared.order.length - sight());
const room = () => Math.max(1, tall() - (grid.clientHeight - by("heads").offsetHeight));
const first = () => {
  if (tall() < TALLEST) return Math.min(Math.floor(grid.scrollTop / HEIGHT), shared.order.length);
  return Math.round(Math.min(1, grid.scrollTop / room()) * most());
};
const scrollTo = (place) => {
  grid.scrollTop = tall() < TALLEST ? place * HEIGHT : (place / Math.max(1, most())) * room();
};

const badge = (one) => {
  if (!one.action) return "";
  const more = one.action === "relabel" ? ` → ${one.new}` : one.action === "weight" ? ` ${one.weight}` : "";
  return make("span", { class: `badge ${one.action}`, title: one.action + more }, one.action + more);
};

// Ends of the track on which intervals are drawn, the same for all rows
let ends = [-1, 1];
const findEnds = () => {
  const all = shared.columns.get("value");
  const step = Math.max(1, Math.floor(all.length / 20_000));
  const sample = [];
  for (let i = 0; i < all.length; i += step) sample.push(all[i]);
  sample.sort((a, b) => a - b);
  const at = (q) => sample[Math.floor(q * (sample.length - 1))];
  const wide = Math.max(at(0.99) - at(0.01), 1e-12);
  ends = [Math.min(at(0.01) - 0.4 * wide, 0), Math.max(at(0.99) + 0.4 * wide, 0)];
};

const band = (one) => {
  if (one.low === null) return "";
  const at = (x) => 100 * Math.min(1, Math.max(0, (x - ends[0]) / (ends[1] - ends[0])));
  const box = make("span", { class: "track", title: `${value(one.low)} to ${value(one.high)}` });
  const [zero, line, dot] = [make("i", { class: "zero" }), make("i", { class: "line" }), make("i", { class: "dot" })];
  zero.style.left = `${at(0)}%`;
  line.style.left = `${at(one.low)}%`;
  line.style.width = `${at(one.high) - at(one.low)}%`;
  dot.style.left = `${at(one.value)}%`;
  box.classList.add(one.low > 0 ? "up" : one.high < 0 ? "down" : "open");
  box.append(zero, line, dot, make("span", { class: "hidden" }, `${value(one.low)} to ${value(one.high)}`));
  return box;
};

const content = (column, one) => {
  switch (column.class === "cell" ? "cell" : column.key) {
    case "": return make("input", { type: "checkbox", tabindex: "-1", checked: Boolean(shared.mask[one.row]), "aria-label": `Select row ${one.id}` });
    case "decision": return badge(one);
    case "value": return value(one.value);
    case "low": return band(one);
    case "suspicion": return one.suspicion === null || one.suspicion === undefined ? "" : percent(one.suspicion);
    case "copies": return one.copies ? count(one.copies) : "";
    case "after": return one.action === "drop" ? "" : value(one.after ?? null);
    case "cell": return one.cells[column.cell] ?? "";
    default: return String(one[column.key] ?? "");
  }
};

const fill = (line, place) => {
  const at = shared.order[place];
  const one = known.get(at);
  line.dataset.place = place;
  line.id = `r${at}`;
  line.setAttribute("aria-rowindex", place + 2);
  line.setAttribute("aria-selected", String(Boolean(shared.mask[at])));
  line.classList.toggle("current", place === cursor);
  line.classList.toggle("gone", one?.action === "drop");
  line.classList.toggle("pending", !one);
  line.replaceChildren(
    ...columns.map((column, k) => {
      const cell = make("div", { role: "gridcell", class: `c ${column.class}`, "aria-colindex": k + 1 }, one ? content(column, one) : "");
      if (column.class === "cell" || column.class === "label" || column.class === "id") cell.title = cell.textContent;
      return cell;
    }),
  );
};

export const draw = () => {
  if (grid.offsetParent === null) return;
  const { order } = shared;
  grid.setAttribute("aria-rowcount", order.length + 1);
  grid.setAttribute("aria-colcount", columns.length);
  space.style.height = `${tall()}px`;
  const lo = Math.max(0, first() - 3);
  const hi = Math.min(order.length, first() + sight() + 4);
  while (pool.length < hi - lo) pool.push(make("div", { role: "row", class: "r" }));
  pool.length = Math.max(0, hi - lo);
  const offset = tall() < TALLEST ? lo * HEIGHT : grid.scrollTop - (first() - lo) * HEIGHT;
  const needed = [];
  pool.forEach((line, k) => {
    line.style.transform = `translateY(${offset + k * HEIGHT}px)`;
    fill(line, lo + k);
  });
  space.replaceChildren(...pool);
  if (!order.length) space.append(make("p", { class: "empty", role: "row" }, make("span", { role: "gridcell" }, "No row passes these filters.")));
  for (let place = Math.max(0, lo - AROUND); place < Math.min(order.length, hi + AROUND); place++) {
    if (known.get(order[place])?.version !== version) needed.push(order[place]);
  }
  const active = order.length ? `r${order[cursor]}` : "";
  if (active && by(active)) grid.setAttribute("aria-activedescendant", active);
  else grid.removeAttribute("aria-activedescendant");
  if (needed.length && needed.join() !== asking) said(fetchRows(needed));
};

const fetchRows = async (needed) => {
  asking = needed.join();
  const mine = asking;
  const of = version;
  try {
    const found = await get(`/api/rows?at=${mine}`);
    if (known.size > 5000) known.clear();
    for (const one of found) known.set(one.row, { ...one, version: of });
  } finally {
    if (asking === mine) asking = "";
  }
  draw();
};

let drawing = 0;
const later = () => {
  cancelAnimationFrame(drawing);
  drawing = requestAnimationFrame(draw);
};

// The cursor

export const moveTo = (place, focus = false) => {
  if (!shared.order.length) return;
  cursor = Math.max(0, Math.min(shared.order.length - 1, place));
  const top = first();
  if (cursor < top) scrollTo(cursor);
  else if (cursor >= top + sight()) scrollTo(cursor - sight() + 1);
  shared.active = shared.order[cursor];
  if (focus) grid.focus({ preventScroll: true });
  later();
  tell("active");
};

export const moveToRow = (at) => {
  const place = shared.order.indexOf(at);
  if (place >= 0) moveTo(place);
  else {
    shared.active = at;
    tell("active");
  }
};

const selectAlong = (from, to) =>
  select((mask) => {
    for (let place = Math.min(from, to); place <= Math.max(from, to); place++) mask[shared.order[place]] = 1;
  });

grid.addEventListener("keydown", (event) => {
  if (event.target !== grid) return;
  const page = Math.max(1, sight() - 1);
  const steps = { ArrowDown: cursor + 1, ArrowUp: cursor - 1, PageDown: cursor + page, PageUp: cursor - page, Home: 0, End: shared.order.length - 1 };
  if (event.key in steps) {
    event.preventDefault();
    const from = cursor;
    moveTo(steps[event.key]);
    if (event.shiftKey) selectAlong(from, cursor);
  } else if (event.key === " ") {
    event.preventDefault();
    if (shared.order.length) select((mask) => (mask[shared.order[cursor]] ^= 1));
    anchor = cursor;
  } else if (event.key === "Enter" && shared.order.length) {
    event.preventDefault();
    moveTo(cursor);
    tell("open");
  }
});

space.addEventListener("click", (event) => {
  const line = event.target.closest(".r");
  if (!line) return;
  const place = Number(line.dataset.place);
  if (event.target.closest(".tick")) {
    if (event.shiftKey && anchor !== null) selectAlong(anchor, place);
    else select((mask) => (mask[shared.order[place]] ^= 1));
    anchor = place;
    moveTo(place, true);
    return;
  }
  if (event.shiftKey && anchor !== null) selectAlong(anchor, place);
  else anchor = place;
  moveTo(place, true);
  if (!event.shiftKey) tell("open");
});

export const start = () => {
  findEnds();
  defineColumns();
  template();
  heads();
  grid.addEventListener("scroll", later, { passive: true });
  new ResizeObserver(later).observe(grid);
  on("view", () => {
    cursor = 0;
    anchor = null;
    grid.scrollTop = 0;
    shared.active = shared.order.length ? shared.order[0] : -1;
    tell("active");
    draw();
  });
  on("columns", () => {
    version += 1;
    asking = "";
    defineColumns();
    template();
    heads();
    later();
  });
  on("selection", later);
  on("view-shown", later);
  shared.active = shared.order.length ? shared.order[0] : -1;
};
