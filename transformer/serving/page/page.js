"use strict";
const find = (id) => document.getElementById(id);
const languages = new Intl.DisplayNames(["en"], { type: "language", fallback: "code" });
const languageName = (code) => {
  try { return languages.of(code); } catch { return code; }
};

const KINDS = {
  "translator": { go: "Translate", ask: (run) => `${languageName(run.source)} to ${languageName(run.target)}` },
  "language model": { go: "Continue", ask: (run) => `How a text in ${languageName(run.target)} begins` },
  "masked model": { go: "Fill in", ask: (run) => `A text in ${languageName(run.source)} with blanks: two underscores, __` },
  "classifier": { go: "Classify", ask: (run) => `A text in ${languageName(run.source)}` },
};
const NAMES = {
  nbest: "translations", samples: "samples", temperature: "temperature", top_k: "top k (0: all)",
  top_p: "top p", seed: "seed", max_tokens: "new tokens, at most", words: "words",
};
let runs = [];
let latest = 0; // number of the latest request

function offer(run) {
  const kind = KINDS[run.kind];
  latest++; // ignores the answer to a request for another run
  find("state").textContent = "";
  find("about").textContent = `${run.name}, checkpoint ${run.checkpoint}`;
  find("ask").textContent = kind.ask(run);
  find("go").textContent = kind.go;
  find("answers").replaceChildren();
  offerFiles(run);
  find("settings").replaceChildren(...Object.entries(run.options).filter(([, value]) => typeof value === "number").map(([name, value]) => {
    const label = element("label", "quiet", `${NAMES[name] || name} `);
    const input = element("input");
    Object.assign(input, { type: "number", name, value, min: 0, step: Number.isInteger(value) && name !== "temperature" && name !== "top_p" ? 1 : "any" });
    label.append(input);
    return label;
  }));
}

/** What translates files: only a translator; with several target languages they can be chosen. */
function offerFiles(run) {
  find("documents").hidden = run.kind !== "translator";
  find("into").hidden = run.targets.length < 2;
  find("file").value = "";
  find("target").replaceChildren(...run.targets.map((code) => {
    const option = element("option", "", languageName(code));
    option.value = code;
    return option;
  }));
}

async function translateFile(run, file) {
  const form = new FormData();
  const fields = { file, run: run.name, source: run.source, target: find("target").value };
  Object.entries(fields).forEach(([name, value]) => form.append(name, value));
  const found = await post("translate_file", { body: form });
  const name = found.translatedFileUrl.split("/").pop(), card = element("div", "card");
  const link = card.appendChild(element("a", "best", name.slice(name.indexOf(".") + 1)));
  Object.assign(link, { href: `download_file/${name}`, download: link.textContent });
  if (found.truncated) card.append(element("p", "wrong", `${found.truncated} translations were truncated at the longest length.`));
  return [card];
}

function chosen() {
  return runs[find("runs").selectedIndex];
}

async function ask(run, text) {
  const options = { ...run.options };
  for (const input of find("settings").querySelectorAll("input")) options[input.name] = input.valueAsNumber;
  return post("answer", {
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ run: run.name, text, ...options }),
  });
}

/** The answer to a request, as an object; throws the server's error. */
async function post(path, request) {
  const response = await fetch(path, { method: "POST", ...request });
  const found = await response.json();
  if (!response.ok) throw new Error(found.error);
  return found;
}

function goText(event) {
  event.preventDefault();
  const run = chosen();
  const draw = { "translator": drawTranslations, "language model": drawContinuations, "masked model": drawBlanks, "classifier": drawClasses }[run.kind];
  show(async () => draw((await ask(run, find("text").value)).answers));
}

function goFile() {
  const [file] = find("file").files;
  if (file) show(() => translateFile(chosen(), file));
}

/** Shows what `work` finds, or its error, unless there is a later request. */
async function show(work) {
  const number = ++latest;
  find("state").className = "quiet";
  find("state").textContent = "Working ...";
  const start = performance.now();
  try {
    const found = await work();
    if (number !== latest) return;
    find("state").textContent = `${((performance.now() - start) / 1000).toFixed(2)} s`;
    find("answers").replaceChildren(...found);
  } catch (error) {
    if (number !== latest) return;
    find("answers").replaceChildren();
    find("state").className = "wrong";
    find("state").textContent = error.message;
  }
}

/** A table with a head; numbers are aligned right. */
function table(head, rows) {
  const box = element("div", "scroll"), made = box.appendChild(element("table"));
  const top = made.appendChild(element("tr"));
  head.forEach((name) => top.append(element("th", "quiet", name)));
  for (const row of rows) {
    const line = made.appendChild(element("tr"));
    row.forEach((value) => line.append(typeof value === "number" ? element("td", "number", value.toFixed(3)) : value instanceof Node ? cell(value) : element("td", "", value)));
  }
  return box;
}

function cell(inside) {
  const made = element("td");
  made.append(inside);
  return made;
}

function drawTranslations(answers) {
  return answers.map((answer) => {
    const card = element("div", "card");
    const best = card.appendChild(element("p", "best"));
    best.append(...shaded(answer.translation || "\u00a0", answer.words || []));
    best.dataset.role = "translation";
    if (answer.words && answer.words.length) {
      card.append(element("div", "quiet", `confidence ${percent(answer.confidence)}; less certain words are shaded`));
    }
    if (answer.nbest && answer.nbest.length > 1) {
      card.append(element("h3", "", "Best translations"));
      card.append(table(["score", "log-probability", "translation"], answer.nbest.map((one) => [one.score, one.log_prob, one.text])));
    }
    const parts = (answer.attention || []).filter((part) => part.source.length && part.target.length);
    if (parts.length) card.append(element("h3", "", "Attention of each word"));
    parts.forEach((part) => card.append(drawWords(part)));
    return card;
  });
}

/** The text in parts: words behind a shade that is darker where the model is less certain. */
function shaded(text, words) {
  const parts = [];
  let place = 0;
  for (const [word, confidence] of words) {
    const start = text.indexOf(word, place);
    if (start < 0) continue;
    const mark = element("span", "sure", word);
    mark.style.setProperty("--doubt", `${(100 * (1 - confidence)).toFixed(0)}%`);
    mark.title = `confidence ${percent(confidence)}`;
    parts.push(text.slice(place, start), mark);
    place = start + word.length;
  }
  return [...parts, text.slice(place)];
}

function drawContinuations([answer]) {
  return answer.continuations.map((one) => {
    const card = element("div", "card");
    card.append(element("p", "best", one.text), element("div", "quiet", `log-probability of the new text: ${one.log_prob.toFixed(2)} nats`));
    return card;
  });
}

function predictions(found) {
  return table(["word", "probability", ""], found.map((one) => {
    const bar = element("span", "bar");
    bar.style.width = `${(10 * one.probability).toFixed(2)}rem`;
    return [one.word, one.probability, bar];
  }));
}

function drawBlanks([answer]) {
  if (!answer.blanks.length) return [element("p", "wrong", "The text has no mask: write two underscores, __.")];
  return answer.blanks.map((found, number) => {
    const card = element("div", "card");
    card.append(element("h3", "", `Blank ${number + 1}`), predictions(found));
    return card;
  });
}

function drawClasses([answer]) {
  const card = element("div", "card");
  card.append(predictions(answer.classes));
  return [card];
}

async function begin() {
  try {
    runs = await (await fetch("runs")).json();
  } catch {
    find("state").className = "wrong";
    find("state").textContent = "The server does not answer.";
    return;
  }
  runs.forEach((run) => find("runs").append(element("option", "", run.name)));
  find("choice").hidden = runs.length < 2;
  find("runs").addEventListener("change", () => offer(chosen()));
  find("form").addEventListener("submit", goText);
  find("file").addEventListener("change", goFile);
  find("target").addEventListener("change", goFile);
  find("text").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) find("form").requestSubmit();
  });
  offer(runs[0]);
  find("go").disabled = false;
}

begin();
