"use strict";
// Drawings of attention, for the page, the report and the widgets of notebooks.

/** An element with a class and a text, which is never parsed as markup. */
function element(name, kind = "", text = "") {
  const made = document.createElement(name);
  if (kind) made.className = kind;
  if (text) made.textContent = text;
  return made;
}

/** The kinds of attention, as they are displayed. */
const ATTENTION = { encoder: "in the encoder", masked: "in the decoder, masked", cross: "from the decoder to the encoder" };

/** Offers these names; the choice keeps its place, and is the last one at first. */
function fill(select, names) {
  const before = select.selectedIndex;
  select.replaceChildren(...names.map((name) => element("option", "", name)));
  select.selectedIndex = before >= 0 && before < names.length ? before : names.length - 1;
}

/** The names of things that are counted from 1. */
function numbered(values) {
  return values.map((_, number) => String(number + 1));
}

const percent = (weight) => `${(100 * weight).toFixed(weight < 0.1 ? 1 : 0)} %`;

/** A translation; pointing at one of its words shows its attention to the source words. */
function drawWords({ source, target, weights }) {
  const box = element("div");
  const above = element("div", "words"), below = element("div", "words");
  const reading = element("div", "reading quiet", "Point at a word of the translation, or tap it.");
  const sourceWords = source.map((word) => above.appendChild(element("span", "", word)));
  const choose = (number) => {
    const row = weights[number];
    sourceWords.forEach((word, i) => word.style.setProperty("--weight", row[i].toFixed(3)));
    buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(i === number)));
    const order = row.map((weight, i) => [weight, source[i]]).sort((a, b) => b[0] - a[0]);
    const best = order.slice(0, 3).map(([weight, word]) => `${word} ${percent(weight)}`);
    reading.textContent = `${target[number]}: ${best.join(", ")}`;
  };
  const buttons = target.map((word, number) => {
    const button = below.appendChild(element("button", "", word));
    button.type = "button";
    for (const event of ["mouseenter", "focus", "click"]) button.addEventListener(event, () => choose(number));
    return button;
  });
  box.append(above, below, reading);
  return box;
}

/** Weights of a head as shades, rows attending to columns; `reading` describes the cell pointed at. */
function drawMap({ kind, rows, columns }, weights, reading) {
  const map = element("div", "map");
  map.style.gridTemplateColumns = `auto repeat(${columns.length}, 1.05rem)`;
  map.append(element("span"));
  const columnNames = columns.map((name) => map.appendChild(element("span", "column-name", name)));
  const rowNames = [];
  rows.forEach((name, r) => {
    rowNames.push(map.appendChild(element("span", "row-name", name)));
    columns.forEach((_, c) => {
      const cell = map.appendChild(element("div", "cell"));
      cell.style.setProperty("--weight", weights[r][c]);
      cell.dataset.place = `${r} ${c}`;
    });
  });
  const read = (event) => {
    map.querySelectorAll(".marked").forEach((marked) => marked.classList.remove("marked"));
    const place = event.target.dataset && event.target.dataset.place;
    if (!place) return;
    const [r, c] = place.split(" ").map(Number);
    rowNames[r].classList.add("marked");
    columnNames[c].classList.add("marked");
    const query = kind === "cross" ? `Before ${rows[r]} is written, the decoder` : rows[r];
    reading.textContent = `${query} attends to ${columns[c]}: ${percent(weights[r][c])}`;
  };
  map.addEventListener("mouseover", read);
  map.addEventListener("click", read);
  return map;
}
