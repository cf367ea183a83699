// A sentence pair: its weights, its words and heat maps, and what is pointed at. Every pair is two blocks behind the page:
// what is known of it (JSON), which is read at once, and its weights (base64 of zlib, see `packed` in page.py), which are
// unpacked when the pair is shown. Text only ever becomes text: nothing here is parsed as HTML.
// The scripts of a page are one script: pair.js, picture.js and page.js, which begins.
const STEP = 4; // bytes of a float32
const LEAST_CURVE = 0.1; // of the largest weight: a weaker one has no curve
const MEAN = "mean";
const MARK = "NULL";
const SIDES = ["source", "target"];
const $ = (id) => document.getElementById(id);
const blocks = [...document.querySelectorAll("script.pair")];
const pairs = blocks.map((block) => JSON.parse(block.textContent));
const ways = [];
const labels = new Map();
const state = { pair: 0, ways: [], layer: MEAN, head: MEAN, words: true, numbers: false, word: null };

for (const { name, label } of pairs.flatMap((pair) => pair.weights)) {
  if (!labels.has(name)) ways.push(name);
  labels.set(name, label);
}
state.ways = ways.slice(0, 1);

const element = (tag, properties = {}, ...children) => {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
};
// What `str.split()` of Python takes for white space.
const SPACE = /[\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+/;
const wordsOf = (text) => text.split(SPACE).filter((word) => word !== "");
const plain = (event) => !event.altKey && !event.ctrlKey && !event.metaKey;

// ---- weights ----

const unpacked = { pair: null, weights: null };

async function weightsOf(number) {
  const pair = pairs[number];
  if (unpacked.pair !== pair) {
    const text = blocks[number].nextElementSibling.textContent; // not before it is needed: it may have many megabytes
    Object.assign(unpacked, { pair, weights: parts(pair, await inflated(text)) });
  }
  return unpacked.weights;
}

async function inflated(base64) {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let n = 0; n < text.length; n++) bytes[n] = text.charCodeAt(n);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).arrayBuffer();
}

// Name of a way -> its steps of each layer and head, its bytes, and what there is to know of it.
function parts(pair, buffer) {
  const found = new Map();
  const view = new DataView(buffer);
  let start = 0;
  for (const way of pair.weights) {
    const matrices = way.layers * way.heads;
    const columns = pair.sourceTokens.length + way.null;
    const steps = Float32Array.from({ length: matrices }, (_, n) => view.getFloat32(start + STEP * n, true));
    const size = matrices * pair.targetTokens.length * columns;
    const bytes = new (way.signed ? Int8Array : Uint8Array)(buffer, start + STEP * matrices, size);
    found.set(way.name, { ...way, columns, steps, bytes });
    start += STEP * matrices + size;
  }
  return found;
}

// What is chosen of n layers or heads.
const chosen = (choice, n) => (choice !== MEAN && choice < n ? [choice] : Array.from({ length: n }, (_, i) => i));

// The mean over the chosen layers and heads: a flat array of target tokens x columns.
function meanOf(way, rows) {
  const size = rows * way.columns;
  const sum = new Float64Array(size);
  const layers = chosen(state.layer, way.layers);
  const heads = chosen(state.head, way.heads);
  for (const layer of layers) {
    for (const head of heads) {
      const matrix = layer * way.heads + head;
      const step = way.steps[matrix] / (layers.length * heads.length);
      for (let n = 0; n < size; n++) sum[n] += step * way.bytes[matrix * size + n];
    }
  }
  return sum;
}

// Summed over the subwords of a source word, the mean over those of a target word; tokens of no word are left out.
function merged(values, pair, columns, sourceWords, targetWords) {
  const width = sourceWords.length + (columns - pair.sourceTokens.length);
  const sum = new Float64Array(targetWords.length * width);
  const tokens = new Float64Array(targetWords.length);
  pair.targetWords.forEach((j, t) => {
    if (j < 0) return;
    tokens[j]++;
    for (let s = 0; s < columns; s++) {
      const i = s < pair.sourceTokens.length ? pair.sourceWords[s] : sourceWords.length;
      if (i >= 0) sum[j * width + i] += values[t * columns + s];
    }
  });
  return sum.map((value, n) => value / Math.max(1, tokens[Math.floor(n / width)]));
}

// ---- numbers ----

// As many digits as tell weights apart where the largest is `largest`.
function digits(largest) {
  if (largest >= 100) return 0;
  if (largest >= 10) return 1;
  return largest > 0 ? Math.min(8, Math.max(2, 1 - Math.floor(Math.log10(largest)))) : 2;
}
const fixed = (value, places) => value.toFixed(places).replace(/^-(0(\.0*)?)$/, "$1").replace("-", "−");
const short = (value, places) => fixed(value, places).replace(/^(−?)0\./, "$1.");
const largestOf = (values) => values.reduce((most, value) => Math.max(most, Math.abs(value)), 0);

// ---- the chosen pair ----

// Explanations of the numbers of a sentence.
const MEANINGS = {
  entropy: "spread of attention: 0 if each word looks at one word only",
  reliability: "share of words whose most attended source word is also the most important one (top layer)",
  NULL: "share of attention to no word",
};

let maps = []; // what is drawn: one for each way
let looked = null; // the first way between words, whatever the maps show
let drawing = 0;

async function show() {
  const turn = ++drawing;
  const number = state.pair;
  const pair = pairs[number];
  if (!pair) return;
  $("pair").setAttribute("aria-busy", "true");
  try {
    const weights = await weightsOf(number);
    if (turn !== drawing) return;
    draw(pair, weights);
  } catch (error) {
    if (turn !== drawing) return;
    fail(`The weights of sentence ${pair.index + 1} cannot be shown: ${error.message}`);
  }
  $("pair").setAttribute("aria-busy", "false");
}

function fail(message) {
  $("failure").textContent = message;
  $("failure").hidden = !message;
}

function draw(pair, weights) {
  const words = [wordsOf(pair.source), wordsOf(pair.target)];
  const within = SIDES.find((side) => $(side).contains(document.activeElement));
  $("number").textContent = `Sentence ${pair.index + 1}`;
  $("notes").replaceChildren(
    ...Object.entries(pair.notes).map(([name, value]) =>
      element(
        "div",
        {},
        element("dt", { textContent: name }),
        element("dd", { textContent: fixed(value, Math.min(3, digits(Math.abs(value)))) }),
        element("dd", { className: "faint", textContent: MEANINGS[name] ?? "" }),
      ),
    ),
  );
  const side = (tokens, ofTokens, ofWords) =>
    state.words ? { labels: ofWords, words: ofWords.map((_, n) => n) } : { labels: tokens, words: ofTokens };
  const source = side(pair.sourceTokens, pair.sourceWords, words[0]);
  const target = side(pair.targetTokens, pair.targetWords, words[1]);
  const links = new Set((pair.links ?? []).map(([i, j]) => `${i}-${j}`));
  looked = null;
  maps = state.ways.map((name) => {
    const way = weights.get(name);
    if (!way) return null;
    let values = meanOf(way, pair.targetTokens.length);
    const between = state.words || !looked ? merged(values, pair, way.columns, ...words) : null;
    looked ??= { way, values: between, width: words[0].length + way.null };
    if (state.words) values = between;
    return heatMap(way, values, source, target, links);
  });
  sentence("source", words[0]);
  if (looked?.way.null) $("source").append(word("source", words[0].length, MARK, "null"));
  sentence("target", words[1]);
  without(pair.without);
  const missing = (name) => element("p", { className: "faint", textContent: `${labels.get(name)}: not for this sentence.` });
  $("maps").replaceChildren(...maps.map((map, n) => map?.figure ?? missing(state.ways[n])));
  maps = maps.filter(Boolean);
  // One cell of all can be reached by Tab, the others from there by arrows; so with the words.
  if (maps[0]?.cells[0]?.[0]) maps[0].cells[0][0].tabIndex = 0;
  const key = pair.links ? [element("span", { className: "gold" }), pair.linkKind, element("br")] : [];
  $("key").replaceChildren(...key);
  options(weights);
  if (state.word && !elementsOf(state.word.side)[state.word.n]) state.word = null;
  look();
  if (within) elementsOf(state.word?.side ?? within)[state.word?.n ?? 0]?.focus(); // who goes on by key stays in the words
}

// ---- words: point at one, and the other side is shaded ----

let hovered = null;

const elementsOf = (side) => [...$(side).querySelectorAll(".word")];
const isWord = (word, side, n) => word?.side === side && word.n === n;

function word(side, n, text, more = "") {
  const made = element("span", { className: `word ${more}`, textContent: text, tabIndex: -1 });
  Object.assign(made.dataset, { side, n });
  made.setAttribute("role", "option");
  return made;
}

function sentence(side, words) {
  $(side).replaceChildren(...words.flatMap((text, n) => [word(side, n, text), " "]));
}

// What changes when a source word is taken away, computed when the page was written.
function without(found) {
  $("without").hidden = !found;
  if (!found) return;
  const line = (name, parts, tag) =>
    element("p", { dir: "auto" }, element("span", { className: "faint", textContent: `${name}: ` }), ...parts.flatMap((part) => [changed(part, tag), " "]));
  const same = [...found.before, ...found.after].every((part) => !part.changed);
  $("without").replaceChildren(
    element("h4", {}, "Without ", element("b", {}, element("bdi", { textContent: found.word })), ", the word that matters most"),
    ...(found.given.length ? [line("Given", found.given, "del")] : []),
    line(found.given.length ? "The model itself, before" : "Before", found.before, "del"),
    line("After", found.after, "ins"),
    element("p", { className: "faint" }, same ? "The translation stays the same. " : "", "The stronger the colour of a word, the less likely it becomes without the source word (occlusion)."),
  );
}

function changed({ text, changed: is, loss }, tag) {
  const made = element(is ? tag : "span", { textContent: text });
  if (!(loss > 0.05)) return made;
  made.classList.add("shaded");
  made.style.setProperty("--v", Math.min(1, loss / 5).toFixed(3));
  made.title = `${fixed(loss, 2)} nats less likely`;
  return made;
}

// Curves between the words: of every target word to the strongest of the source, and of the one that is chosen to all.
const SVG = "http://www.w3.org/2000/svg";
const drawnCurves = document.createElementNS(SVG, "svg");
drawnCurves.id = "curves";
drawnCurves.setAttribute("aria-hidden", "true");
$("lines").append(drawnCurves);

function curves(at) {
  const box = $("lines").getBoundingClientRect();
  if (!looked || !box.width) return drawnCurves.replaceChildren();
  const [sources, targets] = SIDES.map((side) =>
    elementsOf(side).map((one) => {
      const { left, width, top, bottom } = one.getBoundingClientRect();
      return [left + width / 2 - box.left, (side === "source" ? bottom : top) - box.top];
    }),
  );
  const drawn = [];
  const curve = (i, j, share, faded) => {
    if (!sources[i] || !targets[j] || share < LEAST_CURVE) return;
    const [x, y] = sources[i];
    const [u, v] = targets[j];
    const made = document.createElementNS(SVG, "path");
    made.setAttribute("d", `M${x},${y} C${x},${(y + v) / 2} ${u},${(y + v) / 2} ${u},${v}`);
    made.setAttribute("stroke-width", (1 + 2 * share).toFixed(1));
    made.setAttribute("opacity", (faded ? 0.15 : 0.2 + 0.8 * share).toFixed(2));
    drawn.push(made);
  };
  const { values, width } = looked;
  const largest = largestOf(values);
  for (let j = 0; j * width < values.length; j++) {
    const row = Array.from(values.subarray(j * width, (j + 1) * width), Math.abs);
    const most = largestOf(row);
    curve(row.indexOf(most), j, largest > 0 ? most / largest : 0, at);
  }
  if (at) {
    const weights = weightsWith(at);
    const most = largestOf(weights);
    weights.forEach((value, n) => curve(...(at.side === "source" ? [at.n, n] : [n, at.n]), most > 0 ? Math.abs(value) / most : 0));
  }
  drawnCurves.replaceChildren(...drawn);
}
window.addEventListener("resize", () => look());

// The weights between a word and each one of the other side.
function weightsWith({ side, n }) {
  const { values, width } = looked;
  return side === "target"
    ? Array.from(values.subarray(n * width, (n + 1) * width))
    : Array.from({ length: values.length / width }, (_, j) => values[j * width + n]);
}

// Show what a word looks at: the one under the pointer, or else the chosen one.
function look() {
  const at = hovered ?? state.word;
  const pair = pairs[state.pair];
  if (!pair) return;
  for (const side of SIDES) {
    for (const [n, one] of elementsOf(side).entries()) {
      const picked = isWord(state.word, side, n);
      one.classList.remove("here", "shaded", "below", "linked");
      one.tabIndex = picked || (!state.word && side === "target" && n === 0) ? 0 : -1;
      one.setAttribute("aria-selected", picked);
    }
  }
  for (const part of pointed) part.classList.remove("here");
  pointed = [];
  const here = at && elementsOf(at.side)[at.n];
  curves(here && at);
  if (!here || !looked) {
    $("readout").textContent = "Point at a word or a cell, tap it, or go there with Tab and the arrow keys.";
    $("readout").className = "faint";
    return;
  }
  const other = at.side === "target" ? "source" : "target";
  const weights = weightsWith(at);
  const largest = largestOf(weights);
  const others = elementsOf(other);
  const links = (pair.links ?? []).filter(([i, j]) => (at.side === "target" ? j : i) === at.n).map(([i, j]) => (at.side === "target" ? i : j));
  weights.forEach((value, n) => {
    others[n]?.style.setProperty("--v", largest > 0 ? (Math.abs(value) / largest).toFixed(3) : 0);
    others[n]?.classList.add("shaded");
    others[n]?.classList.toggle("below", value < 0);
  });
  for (const n of links) others[n]?.classList.add("linked");
  here.classList.add("here");
  for (const map of state.words ? maps : []) pointed.push((at.side === "target" ? map.rows : map.headers)[at.n]);
  pointed = pointed.filter(Boolean);
  for (const part of pointed) part.classList.add("here");
  const places = digits(largestOf(looked.values));
  const name = (side, n) => element("b", {}, element("bdi", { textContent: elementsOf(side)[n].textContent }));
  const strongest = partnersOf(weights).slice(0, 3).flatMap((n, k) => [k ? ", " : "", name(other, n), ` ${fixed(weights[n], places)}`]);
  const linked = links.flatMap((n, k) => [k ? ", " : `; ${pair.linkKind} to `, name(other, n)]);
  $("readout").className = "";
  $("readout").replaceChildren(
    name(at.side, at.n),
    at.side === "target" ? " from " : " goes to ",
    ...(strongest.length ? strongest : ["nothing"]),
    ` (${[looked.way.label, of(looked.way)].filter(Boolean).join(", ")})`,
    ...linked,
  );
}

// The words that a row or column names, the strongest first.
const partnersOf = (weights) => {
  const least = 0.05 * largestOf(weights);
  return weights.map((_, n) => n).filter((n) => Math.abs(weights[n]) > least).sort((a, b) => Math.abs(weights[b]) - Math.abs(weights[a]));
};

const wordAt = (event) => {
  const one = event.target.closest?.(".word");
  return one?.dataset.side ? { side: one.dataset.side, n: Number(one.dataset.n) } : null;
};

function pick(at, focus = false) {
  state.word = at;
  hovered = null;
  remember();
  look();
  if (focus && at) elementsOf(at.side)[at.n].focus();
}

for (const side of SIDES) {
  $(side).addEventListener("mouseover", (event) => {
    hovered = wordAt(event);
    look();
  });
  $(side).addEventListener("mouseleave", () => {
    hovered = null;
    look();
  });
  $(side).addEventListener("focusin", (event) => {
    const at = wordAt(event);
    if (at && !isWord(state.word, at.side, at.n)) pick(at);
  });
  $(side).addEventListener("click", (event) => {
    const at = wordAt(event);
    if (at) pick(at, true);
  });
  $(side).addEventListener("keydown", (event) => {
    const at = wordAt(event);
    if (!at || !plain(event)) return;
    const words = elementsOf(side);
    const onward = getComputedStyle($(side)).direction === "rtl" ? "ArrowLeft" : "ArrowRight";
    const steps = { ArrowRight: onward === "ArrowRight" ? 1 : -1, ArrowLeft: onward === "ArrowLeft" ? 1 : -1, Home: -at.n, End: words.length - 1 - at.n };
    if (event.key in steps) pick({ side, n: Math.min(words.length - 1, Math.max(0, at.n + steps[event.key])) }, true);
    else if ((event.key === "ArrowUp" || event.key === "ArrowDown") && looked) {
      const [partner] = partnersOf(weightsWith(at));
      const there = side === "source" ? "target" : "source";
      if (elementsOf(there).length) pick({ side: there, n: partner ?? 0 }, true);
    } else if (event.key === "Escape") pick(null);
    else return;
    event.preventDefault();
  });
}

// ---- heat maps ----

function heatMap(way, values, source, target, links) {
  const width = source.labels.length + way.null;
  const largest = largestOf(values);
  const places = digits(largest);
  const headers = [];
  const heads = element("tr", {}, element("td"));
  for (let i = 0; i < width; i++) {
    const label = i < source.labels.length ? source.labels[i] : MARK;
    const none = i >= source.labels.length || source.words[i] < 0;
    headers.push(element("th", { scope: "col", className: none ? "none" : "", title: label }, element("span", { textContent: label })));
  }
  heads.append(...headers);
  const body = element("tbody");
  const rows = [];
  const cells = target.labels.map((label, j) => {
    const row = element("tr");
    rows.push(element("th", { scope: "row", className: target.words[j] < 0 ? "none" : "", title: label }, element("span", { textContent: label })));
    const cellsOfRow = Array.from({ length: width }, (_, i) => {
      const value = values[j * width + i];
      const share = largest > 0 ? Math.abs(value) / largest : 0;
      const cell = element("td", { textContent: short(value, places), tabIndex: -1 });
      cell.style.setProperty("--v", share.toFixed(3));
      if (value < 0) cell.classList.add("below");
      if (share > 0.7) cell.classList.add("much");
      else if (share > 0.55) cell.classList.add("some");
      if (i >= source.labels.length) cell.classList.add("null");
      else if (links.has(`${source.words[i]}-${target.words[j]}`)) cell.classList.add("linked");
      return cell;
    });
    row.append(rows[j], ...cellsOfRow);
    body.append(row);
    return cellsOfRow;
  });
  const caption = element("figcaption", {}, element("b", { textContent: way.label }), " ", element("span", { textContent: of(way) }));
  const table = element("table", {}, element("thead", {}, heads), body);
  table.setAttribute("aria-label", `${way.label}, target in rows, source in columns`);
  const scale = element("div", { className: way.signed ? "scale signed" : "scale" });
  scale.append(way.signed ? fixed(-largest, places) : "0", element("i"), fixed(largest, places));
  const figure = element("figure", { className: "map" }, caption, element("div", { className: "over" }, table), scale);
  return { way, figure, cells, rows, headers, values, width, largest, places, source, target, links };
}

// Of which layers and heads a heat map is: "layer 0, mean of 8 heads", "mean of 6 layers and 8 heads".
function of(way) {
  const told = [];
  const means = [];
  for (const [count, choice, name] of [
    [way.layers, state.layer, "layer"],
    [way.heads, state.head, "head"],
  ]) {
    if (count === 1) continue;
    if (chosen(choice, count).length === 1) told.push(`${name} ${choice}`);
    else means.push(`${count} ${name}s`);
  }
  if (means.length) told.push(`mean of ${means.join(" and ")}`);
  return told.join(", ");
}

// ---- pointing at a cell ----

let pointed = [];

function point(cell) {
  const map = cell && maps.find((one) => one.figure.contains(cell));
  look();
  if (!map) return;
  for (const one of SIDES.flatMap(elementsOf)) one.classList.remove("here", "shaded", "linked");
  for (const part of pointed) part.classList.remove("here");
  pointed = [];
  const [j, i] = place(map, cell);
  const said = [];
  for (const one of maps) {
    if (i >= one.width) continue;
    pointed.push(one.cells[j][i], one.rows[j], one.headers[i]);
    said.push(`${one.way.label} ${fixed(one.values[j * one.width + i], one.places)}`);
  }
  const [from, to] = [map.source.words[i] ?? -1, map.target.words[j]];
  for (const [side, n] of [["source", from], ["target", to]]) if (n >= 0) pointed.push(elementsOf(side)[n]);
  if (map.links.has(`${from}-${to}`)) said.push(pairs[state.pair].linkKind);
  for (const part of pointed) part.classList.add("here");
  $("readout").className = "";
  const label = (text) => element("b", {}, element("bdi", { textContent: text }));
  $("readout").replaceChildren(label(map.target.labels[j]), " from ", label(map.source.labels[i] ?? MARK), `: ${said.join(", ")}`);
}

const place = (map, cell) => [cell.parentNode.sectionRowIndex, cell.cellIndex - 1];
const cellAt = (event) => event.target.closest?.("tbody td");

$("maps").addEventListener("mouseover", (event) => point(cellAt(event)));
$("maps").addEventListener("mouseleave", () => point(cellAt({ target: document.activeElement })));
$("maps").addEventListener("focusin", (event) => {
  const cell = cellAt(event);
  if (!cell) return;
  for (const other of $("maps").querySelectorAll('td[tabindex="0"]')) other.tabIndex = -1;
  cell.tabIndex = 0;
  point(cell);
});
$("maps").addEventListener("keydown", (event) => {
  const cell = cellAt(event);
  const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
  if (!cell || !step || !plain(event)) return;
  const map = maps.find((one) => one.figure.contains(cell));
  const [j, i] = place(map, cell);
  map.cells[j + step[0]]?.[i + step[1]]?.focus();
  event.preventDefault();
});
