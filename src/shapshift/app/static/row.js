// One row, opened: what it holds, why it has its value, what label it should rather have, and its copies.
import { by, count, get, make, on, percent, plain, said, shared, tell, unit, value } from "/static/api.js";
import { moveToRow } from "/static/table.js";

const drawer = by("row");
let opened = -1;
let facts = null;

export const close = () => {
  if (drawer.hidden) return;
  const inside = drawer.contains(document.activeElement);
  drawer.hidden = true;
  document.body.classList.remove("opened");
  opened = -1;
  facts = null;
  if (inside) by("grid").focus();
};

export const suggested = (at) => (facts && opened === at && facts.suspect && facts.suspect.suggested !== facts.label ? facts.suspect.suggested : null);

const want = (action, more) => {
  shared.wanted = { action, rows: [opened], more };
  tell("act");
};

export const takeSuggestion = async () => {
  const at = shared.active;
  if (opened !== at) {
    opened = at;
    facts = await get(`/api/row/${at}`);
  }
  const label = suggested(at);
  if (label === null) throw new Error("No other label is suggested for this row.");
  shared.wanted = { action: "relabel", rows: [at], more: { label, reason: facts.suspect.reason } };
  tell("act");
};

const fact = (name, ...content) => [make("dt", {}, name), make("dd", {}, ...content)];
const link = (at, text) => make("button", { type: "button", class: "link", onclick: () => moveToRow(at) }, text);

const cells = (one) => {
  const list = make("dl", { class: "facts" });
  for (const cell of one.features) {
    let content = make("span", { class: cell.kind === "text" ? "text" : "" }, String(cell.value));
    if (cell.kind === "missing") content = make("span", { class: "quiet" }, "missing");
    if (cell.kind === "image") content = make("img", { src: `/api/image/${one.row}/${cell.column}`, alt: `Image in ${cell.name}`, loading: "lazy" });
    list.append(...fact(cell.name, content, cell.feature ? "" : make("span", { class: "quiet" }, " (no feature)")));
  }
  return list;
};

const picture = ({ width, height, grey }) => {
  const canvas = make("canvas", { width, height, class: "pixels", role: "img", "aria-label": "The features as a picture" });
  const pen = canvas.getContext("2d");
  const image = pen.createImageData(width, height);
  grey.forEach((x, i) => image.data.set([x, x, x, 255], 4 * i));
  pen.putImageData(image, 0, 0);
  return canvas;
};

const table = (caption, heads, rows) =>
  make(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    make(
      "table",
      {},
      make("thead", {}, make("tr", {}, ...heads.map((head) => make("th", { scope: "col", class: head.startsWith(">") ? "n" : null }, head.replace(">", ""))))),
      make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map((cell, k) => make("td", { class: heads[k].startsWith(">") ? "n" : null }, cell))))),
    ),
  );

const why = async (at, box) => {
  box.replaceChildren(make("p", { class: "quiet busy" }, "Asking the validation rows…"));
  let found;
  try {
    found = await get(`/api/why/${at}`);
  } catch (error) {
    box.replaceChildren(make("p", { class: "quiet" }, error.message));
    return;
  }
  if (opened !== at) return;
  if (!found.counts) return box.replaceChildren(make("p", { class: "sentence" }, found.sentence, " ", link(found.first, "Open that row")));
  const [up, down] = found.counts;
  box.replaceChildren(
    make("p", { class: "sentence" }, found.sentence),
    make("p", { class: "quiet" }, `${value(found.gain)} from ${count(up)} and ${value(found.loss)} from ${count(down)} validation rows ${unit()}`),
    make("h4", {}, "Validation rows behind it"),
    table("Validation rows behind it", ["Row", "Class", ">Value there", ">Distance", ">Rank"], found.points.map((p) => [p.id, p.label, make("span", { class: p.value > 0 ? "up" : "down" }, value(p.value)), plain(p.distance), p.rank === null ? "–" : count(p.rank)])),
    ...(found.neighbors.length
      ? [make("h4", {}, "Its nearest training rows"), table("Its nearest training rows", ["Row", "Class", ">Distance"], found.neighbors.map((p) => [link(p.row, p.id), p.label, plain(p.distance)]))]
      : []),
  );
};

const actions = (one) =>
  make(
    "div",
    { class: "acts-row" },
    ...["keep", "drop", "relabel", "weight"].map((action) => make("button", { type: "button", "aria-pressed": String(one.action === action), onclick: () => want(action) }, action[0].toUpperCase() + action.slice(1))),
  );

const render = (one) => {
  const chosen = one.action ? ` ${one.action}${one.action === "relabel" ? ` → ${one.new}` : one.action === "weight" ? ` ${one.weight}` : ""}` : "";
  const parts = [
    make("header", {}, make("h2", {}, `Row ${one.id}`), make("button", { type: "button", "aria-label": "Close the row", onclick: close }, "✕")),
    make("p", { class: "tags" }, make("span", { class: "tag" }, one.label), one.owner === undefined ? null : make("span", { class: "tag" }, one.owner), chosen ? make("span", { class: `badge ${one.action}` }, chosen.trim()) : null),
    actions(one),
    make(
      "dl",
      { class: "figures" },
      make("div", {}, make("dt", {}, `Value ${unit()}`), make("dd", {}, value(one.value))),
      make("div", {}, make("dt", {}, "95% interval"), make("dd", {}, one.low === null ? "–" : `${value(one.low)} to ${value(one.high)}`)),
      make("div", {}, make("dt", {}, "After"), make("dd", {}, one.action === "drop" ? "dropped" : value(one.after))),
    ),
  ];
  if (one.sure) parts.push(make("p", { class: "quiet" }, { positive: "Surely positive: another sample of validation rows would not change the sign.", negative: "Surely negative: another sample of validation rows would not change the sign.", open: "Open: another sample of validation rows could change the sign." }[one.sure]));
  if (one.suspect) {
    const other = one.suspect.suggested !== one.label && one.suspect.probability > 0.05;
    parts.push(
      make("h3", {}, "Label"),
      make("p", {}, `Wrong with probability ${percent(one.suspect.probability)}${one.suspect.reason ? `: ${one.suspect.reason}` : ""}.`),
      other ? make("p", {}, "Rather ", make("strong", {}, one.suspect.suggested), " ", make("button", { type: "button", onclick: () => said(takeSuggestion()) }, make("kbd", {}, "S"), " Relabel so")) : null,
    );
  }
  if (one.twins?.length) {
    parts.push(
      make("h3", {}, `Copies (${one.twins.length})`),
      table("Copies", ["Row", "Where", "Class", ...(shared.about.owners ? ["Owner"] : [])], one.twins.map((twin) => [twin.row === undefined ? twin.id : link(twin.row, twin.id), twin.split, twin.label, ...(shared.about.owners ? [twin.owner ?? ""] : [])])),
    );
  }
  const box = make("div", { class: "why" });
  if (shared.state.offers.explain) parts.push(make("h3", {}, "Why"), box);
  parts.push(make("h3", {}, "What it holds"), one.pixels ? picture(one.pixels) : null, cells(one));
  drawer.replaceChildren(...parts.filter(Boolean));
  drawer.scrollTop = 0;
  return box;
};

let pausing;
const open = async (again = false) => {
  const at = shared.active;
  if (at < 0) return;
  if (at === opened && !again && !drawer.hidden) return;
  const held = again ? drawer.querySelector(".why") : null;
  const focus = drawer.contains(document.activeElement) ? document.activeElement.textContent : null;
  const scroll = drawer.scrollTop;
  opened = at;
  const found = await get(`/api/row/${at}`);
  if (opened !== at) return;
  facts = found;
  const box = render(found);
  drawer.hidden = false;
  document.body.classList.add("opened");
  if (held) {
    box.replaceWith(held);
    drawer.scrollTop = scroll;
    if (focus) [...drawer.querySelectorAll("button")].find((one) => one.textContent === focus)?.focus();
    return;
  }
  clearTimeout(pausing); // whoever leafs through rows does not want all of them explained
  if (shared.state.offers.explain) pausing = setTimeout(() => why(at, box), 150);
};

export const start = () => {
  on("open", () => said(open()));
  on("active", () => {
    if (!drawer.hidden) said(open());
  });
  on("columns", () => {
    if (!drawer.hidden) said(open(true));
  });
};
