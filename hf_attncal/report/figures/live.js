// The live page: what the server of `attncal show` is asked. Answers come in pieces, so that the first one is there soon.
const TYPED = JSON.parse($("live").textContent); // what the server says of itself
const NEWLINE = /\r\n|[\n-\r\x1c-\x1e\x85\u2028\u2029]/; // those of `str.splitlines()`
const MOST_AT_ONCE = 16;
let asking = 0;
let waiting = false; // for the sentence that the address names

async function post(path, fields) {
  const response = await fetch(path, { method: "POST", body: new URLSearchParams({ token: TYPED.token, ...fields }) });
  if (!response.ok) throw new Error(await response.text());
  return response.json();
}

const typed = () => $("text").value.split(NEWLINE).map((line) => line.trim()).filter(Boolean);
const lineOf = (pair) => (pair.given ? `${pair.source}\t${pair.target}` : pair.source);

async function ask() {
  const lines = typed();
  if (!lines.length) return;
  fail(lines.length > TYPED.most ? `At most ${TYPED.most} sentences, there are ${lines.length}.` : "");
  if (lines.length > TYPED.most) return;
  const turn = ++asking;
  try {
    sessionStorage.setItem("text", $("text").value); // for a reload of this tab
  } catch {
    // Kept or not: the page works.
  }
  pairs.length = packs.length = state.pair = 0;
  state.word = hovered = null;
  $("browser").hidden = true;
  texts = null;
  const failures = [];
  // Ask for lines; of those that cannot be answered, find out which one it is.
  const answer = async (some, first) => {
    try {
      const found = await post("/answers", { text: some.join("\n"), first });
      if (turn === asking) arrived(found);
    } catch (error) {
      if (turn !== asking) return;
      if (some.length > 1 && !(error instanceof TypeError)) {
        const half = some.length >> 1;
        await answer(some.slice(0, half), first);
        await answer(some.slice(half), first + half);
      } else failures.push(`Sentence ${first + 1}: ${error instanceof TypeError ? "attncal show does not answer." : error.message}`);
      if (turn === asking) fail(failures.join(" "));
    }
  };
  for (let first = 0, count = 1; first < lines.length && turn === asking; count = Math.min(2 * count, MOST_AT_ONCE)) {
    $("progress").textContent = `${first} of ${lines.length} …`;
    await answer(lines.slice(first, first + count), first);
    first += count;
  }
  if (turn === asking) $("progress").textContent = "";
  if (turn === asking && pairs.length) judge(turn);
}

// Whether to trust what is seen, once all of it is there.
async function judge(turn) {
  const found = await post("/verdict", { text: pairs.map((pair) => `${pair.source}\t${pair.target}`).join("\n") }).catch(() => null);
  if (turn === asking && found) $("verdict").textContent = found.text;
}

function arrived(found) {
  for (const { known, weights } of found) {
    pairs.push(known);
    packs.push([{ ways: known.weights, text: weights }]);
    offer(known.weights);
  }
  offer(TYPED.methods);
  texts = null;
  $("browser").hidden = false;
  orders();
  const first = pairs.length === found.length;
  const pinned = waiting && recall() !== -1;
  if (pinned) waiting = false;
  list(true);
  if (!first && !pinned) return;
  reveal(state.pair);
  show().then(() => {
    // Of the example a word is chosen, so that it can be taken away at once.
    if (state.word || !TYPED.example || lineOf(pairs[state.pair]) !== TYPED.example) return;
    const lengths = wordsOf(pairs[state.pair].source).map((text) => text.length);
    pick({ side: "source", n: lengths.indexOf(Math.max(...lengths)) });
  });
}

server.way = async (number, method) => {
  const pair = pairs[number];
  const pack = packs[number];
  const { known, weights } = await post("/way", { text: `${pair.source}\t${pair.target}`, method });
  pack.push({ ways: known.weights, text: weights });
};

server.link = (address) => {
  address.set("sentence", 1);
  address.set("text", lineOf(pairs[state.pair]));
  return "It holds this sentence, what is shown of it and the words taken away: no token, no other sentence. It opens in this browser while attncal show runs at this address.";
};

// ---- words taken away ----

const takenOf = (pair) => (pair.taken ??= new Set());

async function take(word) {
  const pair = pairs[state.pair];
  const taken = takenOf(pair);
  if (word === null) taken.clear();
  else if (!taken.delete(word)) taken.add(word);
  remember();
  await without(pair);
}

async function without(pair) {
  const taken = [...takenOf(pair)].sort((a, b) => a - b);
  pair.without = taken.length ? { asked: true } : null;
  server.drawn();
  look();
  if (!taken.length) return;
  const mine = pair.without;
  try {
    Object.assign(mine, await post("/without", { text: lineOf(pair), taken }), { asked: false });
  } catch (error) {
    fail(`What changes cannot be told: ${error.message}`);
    Object.assign(mine, { asked: false });
  }
  if (pair.without === mine && pairs[state.pair] === pair) server.drawn();
}

server.taken = (pair, words) => {
  const count = wordsOf(pair.source).length;
  pair.taken = new Set(words.filter((n) => n < count));
  if (pair.taken.size) without(pair);
};

server.drawn = () => {
  const pair = pairs[state.pair];
  const taken = takenOf(pair);
  const words = wordsOf(pair.source);
  elementsOf("source").forEach((one, n) => {
    one.classList.toggle("taken", taken.has(n));
    if (taken.has(n)) one.setAttribute("aria-label", `${one.textContent}, taken away`);
    else one.removeAttribute("aria-label");
  });
  const found = pair.without;
  $("without").hidden = !found;
  if (!found) return;
  const names = [...taken].sort((a, b) => a - b).flatMap((n, k) => [k ? ", " : "", element("b", {}, element("bdi", { textContent: words[n] }))]);
  const title = element("h4", {}, "Without ", ...names, found.asked ? " …" : "");
  if (!found.after) return $("without").replaceChildren(title);
  const line = (name, parts, tag) => element("p", { dir: "auto" }, element("span", { className: "faint", textContent: `${name}: ` }), ...parts.flatMap((part) => [changed(part, tag), " "]));
  const same = [...found.before, ...found.after].every((part) => !part.changed);
  $("without").replaceChildren(
    title,
    ...(pair.given ? [line("Given", found.target, "del")] : []),
    line(pair.given ? "The model itself, before" : "Before", found.before, "del"),
    line("After", found.after, "ins"),
    element("p", { className: "faint" }, same ? "The translation stays the same. " : "", "The stronger the colour of a word, the less likely it becomes without them (occlusion, summed over the words taken away)."),
  );
};

function changed({ text, changed: is, loss }, tag) {
  const made = element(is ? tag : "span", { textContent: text });
  if (!(loss > 0.05)) return made;
  made.classList.add("shaded");
  made.style.setProperty("--v", Math.min(1, loss / 5).toFixed(3));
  made.title = `${fixed(loss, 2)} nats less likely`;
  return made;
}

server.picked = () => {
  const at = state.word;
  const words = wordsOf(pairs[state.pair].source);
  const can = at?.side === "source" && at.n < words.length;
  $("take").disabled = !can;
  $("take").textContent = !can ? "Take a source word away" : takenOf(pairs[state.pair]).has(at.n) ? `Put “${words[at.n]}” back` : `Take “${words[at.n]}” away`;
  $("back").hidden = !takenOf(pairs[state.pair]).size;
};

$("take").addEventListener("click", () => take(state.word.n));
$("back").addEventListener("click", () => take(null));
$("source").addEventListener("keydown", (event) => {
  const at = wordAt(event);
  if (!at || !plain(event) || !["x", "Delete", "Backspace", "Enter", " "].includes(event.key)) return;
  event.preventDefault();
  if (at.n < wordsOf(pairs[state.pair].source).length) take(at.n);
});
$("source").addEventListener("dblclick", (event) => {
  const at = wordAt(event);
  if (at && at.n < wordsOf(pairs[state.pair].source).length) take(at.n);
});

// ---- the form ----

$("ask").addEventListener("submit", (event) => {
  if (event.submitter?.formAction.endsWith("/report")) return;
  event.preventDefault();
  waiting = false;
  history.replaceState(null, "", location.pathname);
  ask();
});
$("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) $("ask").requestSubmit($("translate"));
});

// A link has its sentence with it; a reload has what was typed in this tab. The token stays out of the address.
server.begin = () => {
  if (location.search) history.replaceState(null, "", location.pathname + location.hash);
  const pinned = new URLSearchParams(location.hash.slice(1)).get("text");
  try {
    $("text").value = pinned ?? sessionStorage.getItem("text") ?? $("text").value;
  } catch {
    $("text").value = pinned ?? $("text").value;
  }
  waiting = true;
  ask();
};
