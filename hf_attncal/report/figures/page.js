// What can be chosen, the address, the list of sentences, and keys. The last part of the script: it begins.
const ROW = 3.75; // height of a row of the list, in rem

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
  later = setTimeout(() => pairs.length && write(), 200);
}

function address() {
  const pair = pairs[state.pair];
  const address = new URLSearchParams({ sentence: pair.index + 1 });
  for (const name of state.ways) address.append("show", name);
  address.set("layer", state.layer);
  address.set("head", state.head);
  address.set("by", state.words ? "words" : "tokens");
  if (state.numbers) address.set("numbers", "yes");
  if (state.word) address.set("word", `${state.word.side}.${state.word.n}`);
  return address;
}

function write(of = address()) {
  try {
    history.replaceState(null, "", `#${of}`);
  } catch {
    // Some viewers of files allow no such thing: the page works without.
  }
}

// The place of the sentence that the address names, -1 if it is not there; null if it names none.
function recall() {
  const address = new URLSearchParams(location.hash.slice(1));
  if (!address.has("sentence")) return null;
  const number = pairs.findIndex((pair) => pair.index + 1 === Number(address.get("sentence")));
  const picked = [...new Set(address.getAll("show"))].filter((name) => ways.includes(name)).slice(0, 3);
  const count = (name) => (/^\d+$/.test(address.get(name) ?? "") ? Number(address.get(name)) : MEAN);
  if (number >= 0) state.pair = number;
  if (picked.length) state.ways = picked;
  Object.assign(state, { layer: count("layer"), head: count("head") });
  state.words = address.get("by") !== "tokens";
  state.numbers = address.has("numbers");
  const [side, n] = (address.get("word") ?? "").split(".");
  if (number >= 0) {
    state.word = SIDES.includes(side) && /^\d+$/.test(n) ? { side, n: Number(n) } : null;
  }
  return number;
}

// ---- to show somebody: a link, a picture ----

function tell(message) {
  $("said").textContent = message;
}

async function link() {
  const pinned = address();
  const holds = "It holds what is shown, and no text. Whoever has this page can add what stands behind # to its address.";
  clearTimeout(later);
  write(pinned);
  try {
    await navigator.clipboard.writeText(location.href);
    tell(`The link is copied. ${holds}`);
  } catch {
    tell(`The address of this page is the link now: copy it. ${holds}`);
  }
}

$("link").addEventListener("click", link);
$("picture").addEventListener("click", picture);
$("keys").addEventListener("click", () => $("help").showModal());

// ---- the list: only the rows that can be seen are there ----

let listed = []; // numbers of the pairs, in their order
let texts = null; // of the pairs, for the filter

function list(stay = false) {
  texts ??= pairs.map((pair) => `${pair.source}\n${pair.target}`.toLocaleLowerCase());
  const wanted = $("filter").value.trim().toLocaleLowerCase();
  listed = pairs.map((_, n) => n).filter((n) => texts[n].includes(wanted));
  const [note, down] = $("order").value ? JSON.parse($("order").value) : [];
  if (note !== undefined) {
    const value = (n) => pairs[n].notes[note] ?? (down ? -Infinity : Infinity); // what is not known is last
    listed.sort((a, b) => (down ? value(b) - value(a) : value(a) - value(b)) || a - b);
  }
  $("browser").classList.toggle("single", pairs.length < 2); // one sentence needs no list
  const all = `${pairs.length} ${pairs.length === 1 ? "sentence" : "sentences"}`;
  $("count").textContent = listed.length === pairs.length ? all : `${listed.length} of ${all}`;
  if (stay !== true) $("options").scrollTop = 0;
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
  state.word = hovered = null;
  tell("");
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
  if (by === undefined || !plain(event)) return;
  move(by);
  event.preventDefault();
});
$("filter").addEventListener("input", list);
$("order").addEventListener("change", list);
$("previous").addEventListener("click", () => move(-1));
$("next").addEventListener("click", () => move(1));
document.addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input:not([type=checkbox]), select, textarea");
  if (typing || !plain(event) || $("help").open) return;
  if (event.key === "j") move(1);
  else if (event.key === "k") move(-1);
  else if (event.key === "?") $("help").showModal();
  else if (event.key === "/") $("filter").focus();
  else return;
  event.preventDefault();
});
window.addEventListener("hashchange", () => {
  if (recall() === null) return;
  rows();
  show();
});
window.addEventListener("resize", rows);

// By what the list can be ordered: what is known of the sentences that are there.
function orders() {
  const notes = [...new Set(pairs.flatMap((pair) => Object.keys(pair.notes)))];
  const ends = [[false, "lowest"], [true, "highest"]];
  const entries = notes.flatMap((note) => ends.map(([down, text]) => [JSON.stringify([note, down]), `${text} ${note}`]));
  fill($("order"), [["", "as in the text"], ...entries], $("order").value);
}

// ---- begin ----

if (typeof DecompressionStream === "undefined") {
  fail("This browser is too old to unpack the weights (it has no DecompressionStream): a version of 2023 or later shows the sentences.");
} else {
  orders();
  $("browser").hidden = false;
  recall();
  list();
  reveal(state.pair);
  show();
}
