"use strict";
// The sentence browser of a report. Every pair is two blocks behind the page: what is known of it (JSON), which is read
// at once, and its weights (base64 of zlib, see `packed` in page.py), which are unpacked when the pair is shown.
// Text only ever becomes text: nothing here is parsed as HTML.
{
  const STEP = 4; // bytes of a float32
  const ROW = 3.75; // height of a row of the list, in rem
  const MEAN = "mean";
  const MARK = "NULL";
  const $ = (id) => document.getElementById(id);
  const blocks = [...document.querySelectorAll("script.pair")];
  const pairs = blocks.map((block) => JSON.parse(block.textContent));
  const ways = [...new Set(pairs.flatMap((pair) => pair.weights.map((way) => way.name)))];
  const labels = new Map(pairs.flatMap((pair) => pair.weights.map((way) => [way.name, way.label])));
  const state = { pair: 0, ways: ways.slice(0, 1), layer: MEAN, head: MEAN, words: true, numbers: false };

  const element = (tag, properties = {}, ...children) => {
    const made = Object.assign(document.createElement(tag), properties);
    made.append(...children);
    return made;
  };
  const wordsOf = (text) => text.split(SPACE).filter((word) => word !== "");
  // What `str.split()` of Python takes for white space.
  const SPACE = /[\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+/;

  // ---- weights ----

  const unpacked = { pair: -1, weights: null };

  async function weightsOf(number) {
    if (unpacked.pair !== number) {
      const text = atob(blocks[number].nextElementSibling.textContent);
      const bytes = new Uint8Array(text.length);
      for (let n = 0; n < text.length; n++) bytes[n] = text.charCodeAt(n);
      const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
      const weights = parts(pairs[number], await new Response(stream).arrayBuffer());
      Object.assign(unpacked, { pair: number, weights });
    }
    return unpacked.weights;
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

  // ---- the chosen pair ----

  let maps = []; // what is drawn: one for each way
  let drawing = 0;

  async function show() {
    const turn = ++drawing;
    const number = state.pair;
    $("pair").setAttribute("aria-busy", "true");
    let weights;
    try {
      weights = await weightsOf(number);
    } catch (error) {
      return fail(`The weights of sentence ${pairs[number].index + 1} cannot be unpacked: ${error.message}`);
    }
    if (turn === drawing) {
      draw(pairs[number], weights);
      $("pair").setAttribute("aria-busy", "false");
    }
  }

  function fail(message) {
    $("failure").textContent = message;
    $("failure").hidden = false;
  }

  function draw(pair, weights) {
    const words = [wordsOf(pair.source), wordsOf(pair.target)];
    $("number").textContent = `Sentence ${pair.index + 1}`;
    $("source").replaceChildren(...sentence(words[0]));
    $("target").replaceChildren(...sentence(words[1]));
    $("notes").replaceChildren(
      ...Object.entries(pair.notes).map(([name, value]) =>
        element("div", {}, element("dt", { textContent: name }), element("dd", { textContent: fixed(value, digits(Math.abs(value))) })),
      ),
    );
    const side = (tokens, ofTokens, ofWords) =>
      state.words ? { labels: ofWords, words: ofWords.map((_, n) => n) } : { labels: tokens, words: ofTokens };
    const source = side(pair.sourceTokens, pair.sourceWords, words[0]);
    const target = side(pair.targetTokens, pair.targetWords, words[1]);
    const links = new Set((pair.links ?? []).map(([i, j]) => `${i}-${j}`));
    maps = state.ways.map((name) => {
      const way = weights.get(name);
      if (!way) return null;
      let values = meanOf(way, pair.targetTokens.length);
      if (state.words) values = merged(values, pair, way.columns, ...words);
      return heatMap(way, values, source, target, links);
    });
    const missing = (name) => element("p", { className: "faint", textContent: `${labels.get(name)}: not for this sentence.` });
    $("maps").replaceChildren(...maps.map((map, n) => map?.figure ?? missing(state.ways[n])));
    maps = maps.filter(Boolean);
    // One cell of all can be reached by Tab, the others from there by arrows.
    if (maps[0]?.cells[0]?.[0]) maps[0].cells[0][0].tabIndex = 0;
    $("key").replaceChildren(...(pair.links ? [element("span", { className: "gold" }), "gold link"] : []));
    point(null);
    options(weights);
  }

  const sentence = (words) => words.flatMap((word) => [element("span", { textContent: word }), " "]);

  function heatMap(way, values, source, target, links) {
    const width = source.labels.length + way.null;
    let largest = 0;
    for (const value of values) largest = Math.max(largest, Math.abs(value));
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
    return { way, figure, cells, rows, headers, values, width, places, source, target, links };
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
    for (const part of pointed) part.classList.remove("here");
    pointed = [];
    const map = cell && maps.find((one) => one.figure.contains(cell));
    if (!map) {
      $("readout").textContent = "Point at a cell, or go there with Tab and the arrow keys.";
      $("readout").className = "faint";
      return;
    }
    const [j, i] = place(map, cell);
    const said = [];
    for (const one of maps) {
      if (i >= one.width) continue;
      pointed.push(one.cells[j][i], one.rows[j], one.headers[i]);
      said.push(`${one.way.label} ${fixed(one.values[j * one.width + i], one.places)}`);
    }
    const [from, to] = [map.source.words[i] ?? -1, map.target.words[j]];
    for (const [id, word] of [["source", from], ["target", to]]) if (word >= 0) pointed.push($(id).children[word]);
    if (map.links.has(`${from}-${to}`)) said.push("gold link");
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
    if (!cell || !step || event.altKey || event.ctrlKey || event.metaKey) return;
    const map = maps.find((one) => one.figure.contains(cell));
    const [j, i] = place(map, cell);
    map.cells[j + step[0]]?.[i + step[1]]?.focus();
    event.preventDefault();
  });

  // ---- what can be chosen ----

  function fill(select, entries, value) {
    const same = select.length === entries.length && entries.every(([name], n) => select.options[n].value === String(name));
    if (!same) select.replaceChildren(...entries.map(([name, text]) => element("option", { value: name, textContent: text })));
    select.value = String(value);
  }

  function options(weights) {
    const names = ways.map((name) => [name, labels.get(name)]);
    fill($("way0"), names, state.ways[0]);
    for (const n of [1, 2]) {
      fill($(`way${n}`), [["", "–"], ...names], state.ways[n] ?? "");
      $(`way${n}`).parentNode.hidden = ways.length <= n || (n === 2 && state.ways.length < 2);
    }
    const shown = state.ways.map((name) => weights.get(name)).filter(Boolean);
    for (const [id, many] of [["layer", "layers"], ["head", "heads"]]) {
      const most = Math.max(1, ...shown.map((way) => way[many]));
      fill($(id), [[MEAN, "mean"], ...Array.from({ length: most > 1 ? most : 0 }, (_, n) => [n, n])], state[id] < most ? state[id] : MEAN);
      $(id).disabled = most === 1;
    }
    $("words").checked = state.words;
    $("numbers").checked = state.numbers;
    $("maps").classList.toggle("numbered", state.numbers);
  }

  for (const n of [0, 1, 2]) {
    $(`way${n}`).addEventListener("change", () => {
      const picked = [0, 1, 2].map((m) => $(`way${m}`).value).filter(Boolean);
      change({ ways: [...new Set(picked)] });
    });
  }
  for (const id of ["layer", "head"]) {
    $(id).addEventListener("change", () => change({ [id]: $(id).value === MEAN ? MEAN : Number($(id).value) }));
  }
  for (const id of ["words", "numbers"]) $(id).addEventListener("change", () => change({ [id]: $(id).checked }));

  function change(what) {
    Object.assign(state, what);
    remember();
    show();
  }

  // ---- the address has all that is chosen ----

  let later;

  // Not at once: browsers slow down pages that do so at every key that is held down.
  function remember() {
    clearTimeout(later);
    later = setTimeout(write, 200);
  }

  function write() {
    const address = new URLSearchParams({ sentence: pairs[state.pair].index + 1 });
    for (const name of state.ways) address.append("show", name);
    address.set("layer", state.layer);
    address.set("head", state.head);
    address.set("by", state.words ? "words" : "tokens");
    if (state.numbers) address.set("numbers", "yes");
    try {
      history.replaceState(null, "", `#${address}`);
    } catch {
      // Some viewers of files allow no such thing: the page works without.
    }
  }

  function recall() {
    const address = new URLSearchParams(location.hash.slice(1));
    if (!address.has("sentence")) return false;
    const number = pairs.findIndex((pair) => pair.index + 1 === Number(address.get("sentence")));
    const picked = [...new Set(address.getAll("show"))].filter((name) => ways.includes(name)).slice(0, 3);
    const count = (name) => (/^\d+$/.test(address.get(name) ?? "") ? Number(address.get(name)) : MEAN);
    if (number >= 0) state.pair = number;
    if (picked.length) state.ways = picked;
    Object.assign(state, { layer: count("layer"), head: count("head") });
    state.words = address.get("by") !== "tokens";
    state.numbers = address.has("numbers");
    return true;
  }

  // ---- the list: only the rows that can be seen are there ----

  let listed = []; // numbers of the pairs, in their order
  let texts = null; // of the pairs, for the filter

  function list() {
    texts ??= pairs.map((pair) => `${pair.source}\n${pair.target}`.toLocaleLowerCase());
    const wanted = $("filter").value.trim().toLocaleLowerCase();
    listed = pairs.map((_, n) => n).filter((n) => texts[n].includes(wanted));
    const [note, down] = $("order").value ? JSON.parse($("order").value) : [];
    if (note !== undefined) {
      const value = (n) => pairs[n].notes[note] ?? (down ? -Infinity : Infinity); // what is not known is last
      listed.sort((a, b) => (down ? value(b) - value(a) : value(a) - value(b)) || a - b);
    }
    $("count").textContent = listed.length === pairs.length ? `${pairs.length} sentences` : `${listed.length} of ${pairs.length} sentences`;
    $("options").scrollTop = 0;
    rows();
  }

  const height = () => ROW * parseFloat(getComputedStyle(document.documentElement).fontSize);

  function rows() {
    const each = height();
    const first = Math.max(0, Math.floor($("options").scrollTop / each) - 5);
    const last = Math.min(listed.length, first + Math.ceil($("options").clientHeight / each) + 10);
    const made = [];
    for (let n = first; n < last; n++) made.push(row(listed[n], n));
    $("rows").style.height = `${listed.length * ROW}rem`;
    $("rows").replaceChildren(...made);
    const there = listed.indexOf(state.pair);
    if (there >= first && there < last) $("options").setAttribute("aria-activedescendant", `option-${state.pair}`);
    else $("options").removeAttribute("aria-activedescendant");
  }

  function row(number, n) {
    const pair = pairs[number];
    const made = element("div", { id: `option-${number}` });
    Object.assign(made.style, { top: `${n * ROW}rem`, height: `${ROW}rem` });
    made.dataset.pair = number;
    made.setAttribute("role", "option");
    made.setAttribute("aria-selected", number === state.pair);
    made.setAttribute("aria-posinset", n + 1);
    made.setAttribute("aria-setsize", listed.length);
    made.append(
      element("span", { className: "n", textContent: pair.index + 1 }),
      element("span", { dir: "auto", textContent: pair.source }),
      element("span", { dir: "auto", textContent: pair.target }),
    );
    return made;
  }

  function choose(number) {
    state.pair = number;
    reveal(number);
    change({});
  }

  // Scroll the list as little as needed.
  function reveal(number) {
    const each = height();
    const top = listed.indexOf(number) * each;
    const box = $("options");
    if (top >= 0 && top < box.scrollTop) box.scrollTop = top;
    else if (top + each > box.scrollTop + box.clientHeight) box.scrollTop = top + each - box.clientHeight;
    rows();
  }

  // So many rows on in the list; from its beginning where the pair is not in it.
  function move(by) {
    const there = listed.indexOf(state.pair);
    const next = there < 0 ? 0 : Math.min(listed.length - 1, Math.max(0, there + by));
    if (listed.length && listed[next] !== state.pair) choose(listed[next]);
  }

  $("options").addEventListener("scroll", rows, { passive: true });
  $("options").addEventListener("click", (event) => {
    const option = event.target.closest("[data-pair]");
    if (option) choose(Number(option.dataset.pair));
  });
  $("options").addEventListener("keydown", (event) => {
    const page = Math.max(1, Math.floor($("options").clientHeight / height()) - 1);
    const by = { ArrowUp: -1, ArrowDown: 1, PageUp: -page, PageDown: page, Home: -listed.length, End: listed.length }[event.key];
    if (by === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    move(by);
    event.preventDefault();
  });
  $("filter").addEventListener("input", list);
  $("order").addEventListener("change", list);
  $("previous").addEventListener("click", () => move(-1));
  $("next").addEventListener("click", () => move(1));
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest?.("input:not([type=checkbox]), select, textarea");
    if (typing || event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key === "j") move(1);
    if (event.key === "k") move(-1);
  });
  window.addEventListener("hashchange", () => {
    if (!recall()) return;
    rows();
    show();
  });
  window.addEventListener("resize", rows);

  // ---- begin ----

  if (typeof DecompressionStream === "undefined") {
    fail("This browser is too old to unpack the weights (it has no DecompressionStream): a version of 2023 or later shows the sentences.");
  } else {
    const notes = [...new Set(pairs.flatMap((pair) => Object.keys(pair.notes)))];
    fill(
      $("order"),
      [["", "as in the text"], ...notes.flatMap((note) => [[false, "lowest"], [true, "highest"]].map(([down, text]) => [JSON.stringify([note, down]), `${text} ${note}`]))],
      "",
    );
    $("browser").hidden = false;
    recall();
    list();
    reveal(state.pair);
    show();
  }
}
