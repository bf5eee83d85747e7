// Requests to the server, and what all views share: columns of all rows, the view, the selection, the state.

const csrf = document.querySelector('meta[name="csrf"]').content;
const TYPES = { float32: Float32Array, uint16: Uint16Array, uint8: Uint8Array };

const answer = async (response) => {
  if (response.ok) return response;
  let text = `The server answered ${response.status}.`;
  try {
    text = (await response.json()).error ?? text;
  } catch {
    // no JSON: the status says it
  }
  throw new Error(text);
};

const send = (path, options) =>
  fetch(path, options).catch(() => {
    throw new Error("The server does not answer. Was the command ended?");
  });

export const get = async (path) => (await answer(await send(path))).json();

const posted = (path, body) =>
  send(path, {
    method: "POST",
    headers: { "content-type": "application/json", "x-shapshift-csrf": csrf },
    body: JSON.stringify(body),
  });

export const post = async (path, body) => (await answer(await posted(path, body))).json();

export const postForFile = async (path, body) => (await answer(await posted(path, body))).blob();

export const postForRows = async (path, body) =>
  new Uint32Array(await (await answer(await posted(path, body))).arrayBuffer());

export const column = async (name) => {
  const response = await answer(await send(`/api/column/${encodeURIComponent(name)}`));
  return new TYPES[response.headers.get("x-type")](await response.arrayBuffer());
};

// Elements: text from the data is only ever set as textContent.
export const make = (tag, given = {}, ...children) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(given)) {
    if (name === "class") element.className = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
};

export const by = (id) => document.getElementById(id);

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
export const count = (x) => whole.format(x);
const minus = (text) => text.replace("-", "\u2212");
// Values are small: three digits, in a power of ten that is the same for all of them.
let scale = 1;
let power = "";
export const setUnit = (values) => {
  const step = Math.max(1, Math.floor(values.length / 20_000));
  const sample = [];
  for (let i = 0; i < values.length; i += step) sample.push(Math.abs(values[i]) || 0);
  const most = sample.sort((a, b) => a - b)[Math.floor(0.9 * sample.length)];
  const exponent = most > 0 ? Math.floor(Math.log10(most)) : 0;
  const raised = [..."\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079"];
  [scale, power] = [1, ""];
  if (exponent < -1 || exponent > 3) {
    scale = 10 ** -exponent;
    power = `\u00d710${[...String(exponent)].map((c) => (c === "-" ? "\u207b" : raised[c])).join("")}`;
  }
};
export const unit = () => power;
export const value = (x) => (x === null || Number.isNaN(x) ? "\u2013" : minus((x * scale).toFixed(2)));
export const unscaled = (x) => x / scale;
export const percent = (x) => (x === null || x === undefined || Number.isNaN(x) ? "\u2013" : minus(`${(100 * x).toFixed(0)}%`));
export const plain = (x) => (x === null ? "\u2013" : minus(Number(x).toPrecision(3)));

// What is shared

const listeners = new Map();
export const on = (what, listener) => listeners.set(what, [...(listeners.get(what) ?? []), listener]);
export const tell = (what) => (listeners.get(what) ?? []).forEach((listener) => listener());

export const shared = {
  about: null,
  state: null,
  columns: new Map(), // name to typed array, of all rows
  order: new Uint32Array(), // rows of the table, in order
  inView: null, // 1 for rows of the table
  mask: new Uint8Array(), // 1 for selected rows
  selected: 0,
  active: -1, // position of the row under the cursor
};

export const select = (change) => {
  change(shared.mask);
  let n = 0;
  for (let i = 0; i < shared.mask.length; i++) n += shared.mask[i];
  shared.selected = n;
  tell("selection");
};

export const selectedRows = () => {
  if (!shared.selected) return shared.active >= 0 ? [shared.active] : [];
  const rows = [];
  for (let i = 0; i < shared.mask.length; i++) if (shared.mask[i]) rows.push(i);
  return rows;
};

export const ensure = async (...names) => {
  await Promise.all(
    names.filter((name) => !shared.columns.has(name)).map(async (name) => shared.columns.set(name, await column(name))),
  );
};

let fading;
export const toast = (text, isError = false) => {
  const box = by("toast");
  box.textContent = text;
  box.classList.toggle("wrong", isError);
  box.hidden = false;
  clearTimeout(fading);
  fading = setTimeout(() => (box.hidden = true), isError ? 9000 : 3500);
};

// Errors of what the user asked for are said, not swallowed.
export const said = (promise) => promise.catch((error) => toast(error.message, true));
