// The chosen pair as a PNG: drawn from what the page has, in the colours that it has now, and asked of nobody.
const MOST_PIXELS = 16000; // a side of a picture that every browser can make

async function picture() {
  const canvas = document.createElement("canvas");
  const size = paint(canvas.getContext("2d"), false); // how large it will be
  const scale = Math.min(2, MOST_PIXELS / Math.max(size.width, size.height));
  canvas.width = Math.ceil(size.width * scale);
  canvas.height = Math.ceil(size.height * scale);
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  paint(pen, true, size);
  const blob = await new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
  if (!blob) return tell("This browser cannot make a picture of that size: show less of it.");
  const address = URL.createObjectURL(blob);
  const name = `sentence-${pairs[state.pair].index + 1}-${state.ways[0] ?? "words"}.png`;
  element("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60000);
  tell(`${name} is written: this sentence and its heat maps, as they are shown now.`);
}

// Paint the pair, or only measure it. Everything is in CSS pixels, from the upper left corner.
function paint(pen, really, size = { width: 0, height: 0 }) {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  const tint = (below, share) => `rgb(${colour(below ? "--below" : "--heat")} / ${share})`;
  const EDGE = 24;
  const LINE = 28;
  const LONGEST = 150; // of a label beside or above a heat map
  const most = Math.max(760, ...maps.map((map) => map.width * 26 + 200)); // width of the text
  const font = (pixels, weight = 400) => (pen.font = `${weight} ${pixels}px system-ui, sans-serif`);
  let right = 0;
  let y = EDGE;
  const text = (what, x, at, { ink = "--ink", align = "left" } = {}) => {
    pen.fillStyle = colour(ink);
    pen.textAlign = align;
    if (really) pen.fillText(what, x, at);
    if (align === "left") right = Math.max(right, x + pen.measureText(what).width);
  };
  const box = (x, top, width, height, fill, line) => {
    if (!really) return;
    pen.fillStyle = fill;
    if (fill) pen.fillRect(x, top, width, height);
    pen.strokeStyle = line ?? "";
    pen.lineWidth = 2;
    if (line) pen.strokeRect(x + 1, top + 1, width - 2, height - 2);
  };
  const cut = (what) => {
    const letters = [...what];
    while (letters.length > 1 && pen.measureText(letters.join("")).width > LONGEST) letters.splice(-2, 2, "…");
    return letters.join("");
  };

  if (really) {
    pen.fillStyle = colour("--paper");
    pen.fillRect(0, 0, size.width, size.height);
  }
  pen.textBaseline = "middle";
  font(13);
  text(`${document.title} · ${$("number").textContent}`, EDGE, y + 7, { ink: "--faint" });
  y += LINE;
  for (const side of SIDES) y = paintWords($(side), elementsOf(side), y) + 8;
  if ($("readout").className !== "faint") {
    font(13);
    text($("readout").textContent, EDGE, y + 7, { ink: "--faint" });
    y += LINE;
  }
  for (const line of document.querySelectorAll("#without:not([hidden]) :is(h4, p[dir])")) {
    if (line.tagName === "P") y = paintWords(line, [...line.children], y) + 4;
    else {
      text(line.textContent, EDGE, y + 7);
      y += LINE;
    }
  }
  for (const map of maps) y = paintMap(map, y + 12);
  return { width: right + EDGE, height: y + EDGE };

  // Words of the page, in lines, from right to left where they run so.
  function paintWords(within, words, top) {
    font(17);
    const backwards = getComputedStyle(within).direction === "rtl";
    const space = pen.measureText(" ").width + 3;
    let x = 0;
    for (const one of words) {
      const width = pen.measureText(one.textContent).width;
      if (x && x + width > most) [x, top] = [0, top + LINE];
      const left = EDGE + (backwards ? most - x - width : x);
      const has = (name) => one.classList.contains(name);
      const share = has("here") ? 0.25 : has("shaded") ? 0.5 * one.style.getPropertyValue("--v") : 0;
      box(left - 2, top, width + 4, LINE - 5, tint(has("below"), share), has("linked") ? colour("--gold") : null);
      const faint = has("null") || has("faint") || within.id === "target";
      text(one.textContent, left, top + 12, { ink: faint && !share ? "--faint" : "--ink" });
      if (one.tagName === "DEL") box(left, top + 12, width, 1.5, colour("--ink"));
      if (one.tagName === "INS") box(left, top + 21, width, 2, colour("--ink"));
      x += width + space;
    }
    return top + LINE;
  }

  function paintMap(map, top) {
    const numbers = state.numbers;
    const [wide, high] = numbers ? [40, 27] : [25, 25];
    font(15, 650);
    text(map.way.label, EDGE, top + 8);
    const after = EDGE + pen.measureText(map.way.label).width + 8;
    font(13);
    text(of(map.way), after, top + 8, { ink: "--faint" });
    font(14);
    const rows = map.target.labels.map(cut);
    const columns = map.headers.map((header) => cut(header.textContent));
    const longest = (labels) => Math.max(0, ...labels.map((label) => pen.measureText(label).width));
    const left = EDGE + longest(rows) + 10;
    const first = top + 30 + longest(columns);
    const at = (i) => left + i * wide + (i >= map.source.labels.length ? 8 : 0);
    columns.forEach((label, i) => {
      pen.save();
      pen.translate(at(i) + wide / 2, first - 6);
      pen.rotate(-Math.PI / 2);
      pen.fillStyle = colour("--ink");
      pen.textAlign = "left";
      if (really) pen.fillText(label, 0, 0);
      pen.restore();
    });
    rows.forEach((label, j) => {
      font(14);
      text(label, left - 8, first + (j + 0.5) * high, { align: "right" });
      for (let i = 0; i < map.width; i++) {
        const value = map.values[j * map.width + i];
        const share = map.largest > 0 ? Math.abs(value) / map.largest : 0;
        const linked = map.cells[j][i].classList.contains("linked");
        box(at(i), first + j * high, wide - 1, high - 1, colour("--hair"));
        box(at(i), first + j * high, wide - 1, high - 1, colour("--paper"));
        box(at(i), first + j * high, wide - 1, high - 1, tint(value < 0, share), linked ? colour("--gold") : null);
        if (!numbers) continue;
        font(12);
        text(short(value, map.places), at(i) + wide / 2, first + (j + 0.5) * high, { align: "center", ink: share > 0.7 ? "--on-much" : share > 0.55 ? "--on-some" : "--ink" });
      }
    });
    if (really) {
      pen.strokeStyle = colour("--line");
      pen.lineWidth = 1;
      pen.strokeRect(left - 1, first - 1, at(map.width - 1) + wide - left + 1, rows.length * high + 1);
    }
    right = Math.max(right, at(map.width - 1) + wide);
    font(12);
    const bottom = first + rows.length * high;
    text(`${map.way.signed ? fixed(-map.largest, map.places) : 0} to ${fixed(map.largest, map.places)}`, left, bottom + 14, { ink: "--faint" });
    return bottom + 24;
  }
}
